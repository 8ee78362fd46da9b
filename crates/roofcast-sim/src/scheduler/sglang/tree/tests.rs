//! Tests of the tree: examples computed by hand, and a comparison with the set of all cached prefixes.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn run(segment: u32, start: u64, length: u64) -> Run {
    Run { segment, start, length }
}

#[test]
fn prefixes_are_shared_locked_and_evicted() {
    let mut tree = Tree::new(1, None);
    let (first, found) = tree.insert(&[run(0, 0, 100), run(1, 0, 20)], 0);
    let (_, shared) = tree.insert(&[run(0, 0, 100), run(2, 0, 30)], 0);
    // 100 tokens are shared, 20 and 30 are separate.
    assert_eq!((found, shared, tree.tokens, tree.evictable(), tree.unlocked(first)), (0, 100, 150, 150, 120));
    tree.lock(first);
    assert_eq!((tree.evictable(), tree.find(&[run(0, 0, 40), run(9, 0, 5)]).length), (30, 40));
    // Only the 30 separate tokens can be evicted; locked tokens stay, however the shared part was split.
    assert_eq!((tree.evict(), tree.evict()), (Some(30), None));
    assert_eq!(tree.find(&[run(0, 0, 100), run(1, 0, 50)]).length, 120);
    tree.unlock(first);
    // 20 tokens are evicted first, then 60 of the shared tokens, then the other 40.
    assert_eq!(
        [tree.evict(), tree.evict(), tree.evict(), tree.evict()],
        [Some(20), Some(60), Some(40), None]
    );
    assert_eq!((tree.tokens, tree.find(&[run(0, 0, 1)])), (0, Found::default()));
}

/// Pages of 16 tokens: two sequences that differ from token 40 on share 32 tokens; of 47 tokens 32 are kept.
#[test]
fn only_whole_pages_are_shared() {
    let mut tree = Tree::new(16, None);
    assert_eq!(tree.insert(&[run(0, 0, 40), run(1, 0, 40)], 0).1, 0);
    assert_eq!((tree.tokens, tree.insert(&[run(0, 0, 40), run(2, 0, 7)], 0)), (80, (2, 32)));
    assert_eq!(tree.find(&[run(0, 0, 40), run(1, 0, 23)]).length, 48);
    assert_eq!(tree.find(&[run(0, 0, 15)]).length, 0);
    // The first tokens alone do not identify a page.
    assert_eq!((tree.insert(&[run(0, 0, 8), run(3, 0, 8)], 0).1, tree.tokens), (0, 96));
}

/// A split stamps both halves, so that the lower half outlives earlier nodes; a match gives the deepest node the newest
/// stamp.
#[test]
fn the_oldest_stamp_goes_first() {
    let mut tree = Tree::new(1, None);
    tree.insert(&[run(0, 0, 10)], 0);
    tree.insert(&[run(1, 0, 10)], 0);
    tree.find(&[run(0, 0, 4)]);
    // 10 tokens of segment 1 are evicted, then the lower 6 and the upper 4 of segment 0.
    assert_eq!([tree.evict(), tree.evict(), tree.evict()], [Some(10), Some(6), Some(4)]);
}

type Token = (u32, u64);

/// Paths in a few segments, so that paths share prefixes and diverge within runs.
fn paths() -> impl Strategy<Value = Vec<Run>> {
    prop::collection::vec((0_u32..2, 0_u64..3, 1_u64..5), 0..5).prop_map(|runs| {
        runs.into_iter().map(|(segment, start, length)| run(segment, start, length)).collect()
    })
}

/// The tokens of a path's whole pages, listed singly.
fn tokens(path: &[Run], page: u64) -> Vec<Token> {
    let all: Vec<Token> =
        path.iter().flat_map(|r| (r.start..r.start + r.length).map(|at| (r.segment, at))).collect();
    all[..all.len() - all.len() % page as usize].to_vec()
}

fn runs(tokens: &[Token]) -> Vec<Run> {
    let mut path = crate::kv_cache::prefix::Tokens::default();
    tokens.iter().for_each(|(segment, start)| path.push(run(*segment, *start, 1)));
    path.runs().to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// The tree behaves like the set of all cached prefixes: a hit is the longest cached prefix, an evicted leaf was
    /// unlocked and has the oldest stamp, and locks balance.
    #[test]
    fn the_tree_is_a_set_of_prefixes(
        page in 1_u64..4,
        moves in prop::collection::vec((0_u8..4, paths(), 0_usize..20), 1..60),
    ) {
        let mut tree = Tree::new(page, None);
        let mut there: BTreeSet<Vec<Token>> = BTreeSet::new();
        let mut locked_nodes: Vec<(Node, Vec<Token>)> = Vec::new();
        let step = page as usize;
        for (what, path, number) in moves {
            let all = tokens(&path, page);
            let path = runs(&all);
            let longest = (step..=all.len()).step_by(step).filter(|n| there.contains(&all[..*n])).last().unwrap_or(0);
            match what {
                0 => {
                    prop_assert_eq!(tree.insert(&path, 0).1, longest as u64);
                    (step..=all.len()).step_by(step).for_each(|n| { there.insert(all[..n].to_vec()); });
                }
                1 => {
                    let Found { node, length, .. } = tree.find(&path);
                    prop_assert_eq!(length, longest as u64);
                    let free = tree.unlocked(node);
                    let before = tree.evictable();
                    tree.lock(node);
                    prop_assert_eq!(before - tree.evictable(), free);
                    locked_nodes.push((node, all[..longest].to_vec()));
                }
                2 if !locked_nodes.is_empty() => {
                    let (node, _) = locked_nodes.swap_remove(number % locked_nodes.len());
                    let before = tree.evictable();
                    tree.unlock(node);
                    prop_assert_eq!(tree.unlocked(node), tree.evictable() - before);
                }
                _ => {
                    let before = tree.tokens;
                    // Unused slots and the root have no tokens.
                    let leaves = tree.nodes.iter().filter(|slot| slot.length > 0 && slot.is_free_leaf());
                    let oldest = leaves.min_by_key(|slot| slot.stamp).map(|slot| slot.length);
                    let gone = tree.evict();
                    prop_assert_eq!(gone, oldest);
                    let gone = gone.unwrap_or(0);
                    prop_assert_eq!(before - tree.tokens, gone);
                    there.retain(|p| tree.clone().find(&runs(p)).length == p.len() as u64);
                }
            }
            prop_assert_eq!(there.len() as u64 * page, tree.tokens);
            let locked: BTreeSet<&[Token]> = locked_nodes
                .iter()
                .flat_map(|(_, p)| (step..=p.len()).step_by(step).map(|n| &p[..n]))
                .collect();
            prop_assert_eq!(tree.tokens - tree.evictable(), locked.len() as u64 * page);
            prop_assert!(locked.iter().all(|prefix| there.contains(*prefix)));
        }
        locked_nodes.into_iter().for_each(|(node, _)| tree.unlock(node));
        while tree.evict().is_some() {}
        prop_assert_eq!((tree.tokens, tree.nodes.held()), (0, 1));
    }
}
