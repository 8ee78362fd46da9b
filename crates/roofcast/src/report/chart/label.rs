//! Placement of labels: next to the marked point or line, clear of each other and of all drawn items.
//!
//! Knows: rectangles. Every label has candidate spots with costs; labels are placed in the order of their weight, each
//! at its cheapest free spot. Knows nothing about what labels mean.

use super::text::{SIZE, width};

/// A rectangle in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) w: f64,
    pub(super) h: f64,
}

impl Rect {
    pub(super) fn around((x, y): (f64, f64), half: f64) -> Rect {
        Rect { x: x - half, y: y - half, w: 2.0 * half, h: 2.0 * half }
    }

    fn shared(&self, other: &Rect) -> f64 {
        let along = |a: f64, la: f64, b: f64, lb: f64| ((a + la).min(b + lb) - a.max(b)).max(0.0);
        along(self.x, self.w, other.x, other.w) * along(self.y, self.h, other.y, other.h)
    }

    /// True if labels at these two places are visibly separate.
    fn apart_from(&self, other: &Rect) -> bool {
        let wider = Rect { x: self.x - GAP, w: self.w + 2.0 * GAP, ..*self };
        wider.shared(other) < 1.0
    }

    fn within(&self, w: f64, h: f64) -> bool {
        self.x >= 0.0 && self.y >= 0.0 && self.x + self.w <= w && self.y + self.h <= h
    }

    /// True if a line between two points runs through the rectangle.
    fn crossed_by(&self, [from, to]: [(f64, f64); 2]) -> bool {
        (1..SAMPLES).any(|step| {
            let share = f64::from(step) / f64::from(SAMPLES);
            let x = from.0 + share * (to.0 - from.0);
            let y = from.1 + share * (to.1 - from.1);
            (self.x..=self.x + self.w).contains(&x) && (self.y..=self.y + self.h).contains(&y)
        })
    }

    /// The point of the rectangle that is nearest to `(x, y)`.
    fn nearest(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (x.clamp(self.x, self.x + self.w), y.clamp(self.y, self.y + self.h))
    }
}

/// A candidate place for a label.
#[derive(Debug, Clone, Copy)]
struct Spot {
    rect: Rect,
    cost: f64,
    /// Start of the leader line; `None` if the label is close to its point.
    from: Option<(f64, f64)>,
    anchor: Anchor,
}

/// Side of a label that is anchored at its point, so that a font with other widths moves only the far side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Left,
    Middle,
    Right,
}

/// A label that has no place yet.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    text: String,
    colour: usize,
    spots: Vec<Spot>,
}

/// A placed label.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Placed {
    pub(super) text: String,
    pub(super) colour: usize,
    pub(super) rect: Rect,
    pub(super) anchor: Anchor,
    /// Leader line from the point to the label; `None` if the label is close to its point.
    pub(super) leader: Option<[(f64, f64); 2]>,
}

const HEIGHT: f64 = SIZE + 2.0;
/// Minimum gap in pixels between two labels in a row; closer labels would read as one.
const GAP: f64 = 6.0;
/// Candidate distances in pixels from a point to its label.
const DISTANCES: [f64; 5] = [7.0, 12.0, 20.0, 30.0, 44.0];
/// Cost of a leader line through a label: as much as the way from the nearest spots to the farthest.
const CROSSING: f64 = 60.0;
/// Number of parts of a leader line whose ends are tested against a label.
const SAMPLES: u32 = 24;
/// Distance in pixels from which a leader line connects the label with its point.
const FAR: f64 = 20.0;

impl Spot {
    /// The line from the point to the label; `None` if the label is close to its point.
    fn leader(&self) -> Option<[(f64, f64); 2]> {
        self.from.map(|at| [at, self.rect.nearest(at)])
    }
}

impl Wanted {
    pub(super) fn has_text(&self) -> bool {
        !self.text.is_empty()
    }

    /// A label with spots around a point: near before far, right before left.
    pub(super) fn point(at: (f64, f64), text: &str, colour: usize) -> Wanted {
        let w = width(text, SIZE);
        let spots = DISTANCES.iter().flat_map(|r| {
            (0..16).map(move |step| {
                let angle = f64::from(step) * std::f64::consts::TAU / 16.0;
                let dx = libm::cos(angle);
                let dy = libm::sin(angle);
                let centre = (at.0 + dx * (r + w / 2.0), at.1 + dy * (r + HEIGHT / 2.0));
                let rect = Rect { x: centre.0 - w / 2.0, y: centre.1 - HEIGHT / 2.0, w, h: HEIGHT };
                let anchor = match dx {
                    dx if dx > 0.1 => Anchor::Left,
                    dx if dx < -0.1 => Anchor::Right,
                    _ => Anchor::Middle,
                };
                Spot { rect, cost: 1.5 * r - 2.0 * dx - dy, from: (*r >= FAR).then_some(at), anchor }
            })
        });
        Wanted { text: text.to_owned(), colour, spots: spots.collect() }
    }

    /// A label with spots above or below a horizontal line at height `y` between two ends, starting from the right.
    pub(super) fn level(y: f64, (from, to): (f64, f64), text: &str, colour: usize) -> Wanted {
        let w = width(text, SIZE);
        let spots = (0..=20).flat_map(|step| {
            let x = from + (to - from - w - 4.0) * (1.0 - f64::from(step) / 20.0);
            [y - HEIGHT - 2.0, y + 2.0].map(|top| {
                let cost = f64::from(step) + if top > y { 6.0 } else { 0.0 };
                Spot { rect: Rect { x, y: top, w, h: HEIGHT }, cost, from: None, anchor: Anchor::Right }
            })
        });
        Wanted { text: text.to_owned(), colour, spots: spots.collect() }
    }

    /// A label with spots right or left of a vertical line at `x`, starting from the top.
    pub(super) fn upright(x: f64, down: f64, text: &str, colour: usize) -> Wanted {
        let w = width(text, SIZE);
        let spots = (0..=20).flat_map(|step| {
            let y = 2.0 + (down - HEIGHT - 4.0) * f64::from(step) / 20.0;
            [4.0, 40.0, 80.0].into_iter().flat_map(move |away| {
                [x + away, x - w - away].map(|left| {
                    let cost = f64::from(step) + if left < x { 3.0 } else { 0.0 } + away / 4.0;
                    let anchor = if left < x { Anchor::Right } else { Anchor::Left };
                    let at = (x, y + HEIGHT / 2.0);
                    Spot {
                        rect: Rect { x: left, y, w, h: HEIGHT },
                        cost,
                        from: (away > FAR).then_some(at),
                        anchor,
                    }
                })
            })
        });
        Wanted { text: text.to_owned(), colour, spots: spots.collect() }
    }
}

/// Places labels within `w` by `h` pixels, clear of each other and as clear of `marks` and `strokes` as possible. A
/// label that would cover another label is omitted.
pub(super) fn place(wanted: Vec<Wanted>, marks: &[Rect], strokes: &[Rect], w: f64, h: f64) -> Vec<Placed> {
    let mut placed: Vec<Placed> = Vec::new();
    for label in wanted {
        let covered = |rect: &Rect, all: &[Rect]| all.iter().map(|r| rect.shared(r)).sum::<f64>();
        let free =
            |spot: &&Spot| spot.rect.within(w, h) && placed.iter().all(|p| spot.rect.apart_from(&p.rect));
        let crossings = |spot: &Spot| {
            let through = |p: &&Placed| {
                spot.leader().is_some_and(|line| p.rect.crossed_by(line))
                    || p.leader.is_some_and(|line| spot.rect.crossed_by(line))
            };
            placed.iter().filter(through).count() as f64
        };
        let cost = |spot: &Spot| {
            let drawn = 3.0 * covered(&spot.rect, marks) + covered(&spot.rect, strokes);
            spot.cost + drawn + CROSSING * crossings(spot)
        };
        let best = label.spots.iter().filter(free).map(|spot| (cost(spot), spot));
        let Some((_, spot)) = best.min_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
        let leader = spot.leader();
        placed.push(Placed {
            text: label.text,
            colour: label.colour,
            rect: spot.rect,
            anchor: spot.anchor,
            leader,
        });
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_at_one_place_stand_apart() {
        let names = ["first", "second", "third", "fourth", "fifth", "sixth"];
        let wanted = names.map(|name| Wanted::point((100.0, 100.0), name, 0)).to_vec();
        let mark = Rect::around((100.0, 100.0), 5.0);
        let placed = place(wanted, &[mark], &[], 200.0, 200.0);
        assert_eq!(placed.len(), names.len());
        for (i, a) in placed.iter().enumerate() {
            assert!(a.rect.within(200.0, 200.0) && a.rect.shared(&mark) < 1.0, "{}", a.text);
            assert!(placed[..i].iter().all(|b| a.rect.shared(&b.rect) < 1.0), "{}", a.text);
        }
    }

    /// Two points above each other: the leader of the second label does not run through the first label.
    #[test]
    fn a_leader_runs_through_no_other_label() {
        let wanted =
            [(100.0, 100.0), (101.0, 99.0)].map(|at| Wanted::point(at, "best: mi300x, 220 users", 0));
        // A curve to both sides and above leaves room only below.
        let curve: Vec<Rect> = (0..60).map(|x| Rect::around((5.0 * f64::from(x), 96.0), 9.0)).collect();
        let placed = place(wanted.to_vec(), &[], &curve, 300.0, 200.0);
        assert_eq!(placed.len(), 2);
        for (a, b) in [(&placed[0], &placed[1]), (&placed[1], &placed[0])] {
            assert!(a.leader.is_none_or(|line| !b.rect.crossed_by(line)), "{placed:?}");
        }
    }

    /// A row as high as one label: the first label is right of its point; the second fits only left of its own point,
    /// directly after the first.
    #[test]
    fn labels_in_a_row_have_a_gap_between_them() {
        let text = "8 × h100-sxm";
        let placed_with = |room: f64| {
            let first = 2.0;
            let height = HEIGHT + 1.0;
            let second = first + 2.0 * (DISTANCES[0] + width(text, SIZE)) + room;
            let wanted = [first, second].map(|x| Wanted::point((x, height / 2.0), text, 0)).to_vec();
            place(wanted, &[], &[], second + 5.0, height).len()
        };
        assert_eq!([GAP - 0.5, GAP + 0.5].map(placed_with), [1, 2]);
    }

    #[test]
    fn the_label_of_an_upright_line_is_off_a_curve_beside_it() {
        let curve: Vec<Rect> = (0..40).map(|y| Rect::around((120.0, 5.0 * f64::from(y)), 2.5)).collect();
        let placed =
            place(vec![Wanted::upright(60.0, 200.0, "SLO: TPOT 50 ms", 0)], &[], &curve, 400.0, 200.0);
        assert!(curve.iter().all(|stroke| placed[0].rect.shared(stroke) < 1.0), "{placed:?}");
        assert!(placed[0].leader.is_some());
    }

    #[test]
    fn what_has_no_room_is_left_out() {
        let wanted = vec![Wanted::point((5.0, 5.0), "much too long", 0)];
        assert_eq!(place(wanted, &[], &[], 10.0, 10.0), []);
    }
}
