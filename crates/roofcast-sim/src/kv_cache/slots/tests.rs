use super::*;

/// Answers of the server, one request after another.
const ANSWERS: &str = include_str!("../../../../roofcast/tests/data/llama-server-slots-b11549.csv");

/// One line of [`ANSWERS`].
#[derive(Debug, serde::Deserialize)]
struct Answer {
    case: String,
    /// The slot that the request asked for.
    asked: Option<i64>,
    slot: usize,
    cached: u64,
    generated: u64,
    prompt: String,
}

fn prompt(text: &str) -> Tokens {
    let mut tokens = Tokens::default();
    for run in text.split(' ') {
        let (segment, rest) = run.split_once(':').unwrap();
        let (start, length) = rest.split_once('+').unwrap();
        let [start, length] = [start, length].map(|number| number.parse().unwrap());
        tokens.push(Run { segment: segment.parse().unwrap(), start, length });
    }
    tokens
}

/// Rules of the server of a case: slots by `-np`, a RAM cache that holds every prompt or none.
fn rules(case: &str) -> SlotCaching {
    let base = SlotCaching {
        count: 4,
        unified: false,
        similarity: 0.1,
        n_cache_reuse: 0,
        host_tokens: 1 << 40,
        checkpoints: 32,
        n_ubatch: 512,
        rewinding: Rewinding::Freely,
    };
    match case {
        "default" => SlotCaching { unified: true, ..base },
        "asked" => SlotCaching { unified: true, ..base },
        "own" | "asked-own" => base,
        "no-ram" => SlotCaching { count: 3, host_tokens: 0, ..base },
        "no-ram-unified" => SlotCaching { unified: true, host_tokens: 0, ..base },
        "one" => SlotCaching { count: 1, ..base },
        "one-no-ram" => SlotCaching { count: 1, host_tokens: 0, ..base },
        "half-alike" => SlotCaching { count: 3, host_tokens: 0, similarity: 0.5, ..base },
        "reuse" => SlotCaching { count: 1, host_tokens: 0, n_cache_reuse: 64, ..base },
        "gemma" => {
            SlotCaching { count: 1, rewinding: Rewinding::Window { tokens: 512, cells: 1024 }, ..base }
        }
        other => panic!("{other}"),
    }
}

#[test]
fn slots_are_chosen_and_kept_as_the_server_does() {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(ANSWERS.as_bytes());
    let mut slots = Slots::new(rules("default"));
    let mut case = "default".to_owned();
    for (number, answer) in reader.deserialize().enumerate() {
        let answer: Answer = answer.unwrap();
        if answer.case != case {
            case.clone_from(&answer.case);
            slots = Slots::new(rules(&case));
        }
        let tokens = prompt(&answer.prompt);
        let known = tokens.len();
        // All outputs of a server of zeros are alike; those of Gemma follow its prompt.
        let output_segment = if case == "gemma" { tokens.runs()[0].segment + 1 } else { 1000 };
        slots.arrive(0, SharedPrefix { tokens, own_from: u64::MAX, output_segment, output_tokens: None });
        let asked = answer.asked.map(|id| id.rem_euclid(slots.rules.count as i64) as usize);
        let cached = match asked {
            Some(slot) => slots.choose(0, slot, known),
            None => slots.find(0, known),
        };
        let chosen = slots.chosen.unwrap();
        assert_eq!((chosen.slot, cached), (answer.slot, answer.cached), "request {number}: {answer:?}");
        assert!(asked.is_some() || slots.find(0, known) == cached);
        slots.admit(0, known);
        slots.leave(0, known + answer.generated, answer.generated);
        slots.forget(0);
    }
}

/// Four slots are busy, so that a fifth request gets none.
#[test]
fn a_busy_slot_is_not_chosen() {
    let mut slots = Slots::new(rules("own"));
    for id in 0..5 {
        let tokens = prompt("1:0+100");
        slots.arrive(id, SharedPrefix { tokens, own_from: 100, output_segment: 0, output_tokens: None });
    }
    for id in 0..4 {
        assert_eq!(slots.find(id, 120), 0);
        slots.admit(id, 120);
    }
    assert_eq!(slots.find(4, 120), 0);
    assert!(slots.chosen.is_none());
    slots.leave(2, 140, 20);
    assert_eq!(slots.find(4, 120), 100);
}

/// A recurrent state after 1,104 tokens cannot go back to 1,000 but by the checkpoint 4 tokens before the prompt's end.
#[test]
fn a_recurrent_state_goes_back_to_a_checkpoint() {
    let mut slots =
        Slots::new(SlotCaching { count: 1, rewinding: Rewinding::Never, host_tokens: 0, ..rules("own") });
    let mut ask = |text: &str, known: u64| {
        let tokens = prompt(text);
        slots.arrive(0, SharedPrefix { tokens, own_from: u64::MAX, output_segment: 7, output_tokens: None });
        let cached = slots.find(0, known);
        slots.admit(0, known);
        slots.leave(0, known + 104, 104);
        slots.forget(0);
        cached
    };
    assert_eq!(ask("1:0+1000", 1000), 0);
    assert_eq!(ask("1:0+1000", 1000), 996);
    // All 1,104 tokens and 50 new ones: the state goes on.
    assert_eq!(ask("1:0+1000 7:0+104 2:0+50", 1154), 1104);
    // 300 of its tokens: no checkpoint is that early.
    assert_eq!(ask("1:0+300 3:0+100", 400), 0);
}
