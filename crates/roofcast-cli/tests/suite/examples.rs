//! Every example runs with the command in its first line.

use crate::support::{roofcast, root};

#[test]
fn every_example_runs_as_its_first_line_says() {
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let command = text
            .lines()
            .next()
            .and_then(|l| l.strip_prefix("# roofcast "))
            .unwrap_or_else(|| panic!("{}: the first line is not `# roofcast …`", path.display()));
        let run = roofcast(command);
        assert_eq!(run.code, 0, "{command}: {}", run.err);
        assert!(!run.out.is_empty());
        count += 1;
    }
    assert!(count >= 5, "only {count} examples");
}
