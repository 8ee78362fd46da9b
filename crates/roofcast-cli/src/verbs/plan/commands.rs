//! Commands that start a planned deployment, folded for people.

use super::table::word;
use crate::show::table;
use roofcast::plan::Launch;

/// Most characters in a line of a command.
const COMMAND: usize = 90;

/// Every command, with the replicas and nodes that it starts.
pub(super) fn launch(all: &[Launch]) -> String {
    let mut text = String::new();
    for l in all {
        let role = word(l.role);
        let what =
            if l.replicas > 1 { format!("each of {} ({role})", l.replicas) } else { format!("the {role}") };
        let note = || table::line(l.note.as_deref().unwrap_or_default()).trim_end().to_owned();
        let how = l.command.as_deref().map_or_else(note, folded);
        let first = match (l.nodes, &l.on_others) {
            (nodes, Some(_)) => format!(", on the first of its {nodes} nodes, whose address is LEADER"),
            _ => String::new(),
        };
        text += &format!("start {what} with {}{first}\n\n  {how}\n\n", l.engine);
        if !l.assumed.is_empty() && l.command.is_some() {
            let keys = l.assumed.join(", ");
            text += &table::line(&format!("not in the command, because a server chooses by itself: {keys}"));
            text += "\n";
        }
        if let Some(command) = &l.on_others {
            text +=
                &format!("  and on each other, RANK being its number from 1\n\n  {}\n\n", folded(command));
        }
    }
    text
}

/// A command over several lines, broken before flags.
fn folded(command: &str) -> String {
    let mut lines = vec![String::new()];
    for (index, part) in command.split(" --").enumerate() {
        let part = if index == 0 { part.to_owned() } else { format!("--{part}") };
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(&part),
            Some(line) if line.len() + part.len() < COMMAND => line.push_str(&format!(" {part}")),
            _ => lines.push(part),
        }
    }
    lines.join(" \\\n    ")
}
