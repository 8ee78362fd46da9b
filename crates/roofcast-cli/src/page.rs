//! The page, if this build has one: three files that `build.rs` embeds.
//!
//! Knows: the files that `npm run build` writes into `web/dist`, and how script, style and an answer are combined into
//! one stand-alone file. Knows nothing about the content of answers.

use crate::show::target::Target;
use anyhow::Result;
use roofcast::Error;
use serde::Serialize;
use std::path::PathBuf;

/// The page's files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    pub(crate) html: &'static str,
    pub(crate) script: &'static str,
    pub(crate) style: &'static str,
}

/// The page of this build; `None` if it was not built.
pub(crate) const PAGE: Option<Page> = include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// Commands that build the page, for messages.
pub(crate) const COMMANDS: [&str; 2] =
    ["npm --prefix web ci && npm --prefix web run build", "cargo build --release"];

/// Tag in `index.html` that the script's contents replace in a stand-alone file; the next constant is the style's.
const SCRIPT: &str = r#"<script type="module" crossorigin src="/page.js"></script>"#;
const STYLE: &str = r#"<link rel="stylesheet" crossorigin href="/page.css">"#;

/// Data embedded in a stand-alone file: the name of a view and the answer that it shows.
#[derive(Serialize)]
struct Shown<'a, T> {
    view: &'static str,
    answer: &'a T,
}

impl Page {
    /// A stand-alone HTML file that shows `answer` in `view` and needs neither a server nor the network.
    pub(crate) fn alone(&self, view: &'static str, answer: &impl Serialize) -> Result<String> {
        let data = inert(&serde_json::to_string(&Shown { view, answer })?);
        let style = format!("<style>{}</style>", self.style);
        // HTML ends a script at `</script`, wherever it occurs; escaping the slash keeps the script's meaning.
        let code = self.script.replace("</script", "<\\/script");
        let script = format!(
            "<script type=\"application/json\" id=\"shown\">{data}</script>\n<script type=\"module\">{code}</script>"
        );
        Ok(self.html.replacen(STYLE, &style, 1).replacen(SCRIPT, &script, 1))
    }
}

/// A stand-alone file that `--html` writes.
pub(crate) struct Alone {
    page: Page,
    file: Target,
}

impl Alone {
    /// The file of `--html`, if the flag is given. Fails before any work is done if there is no page or the path cannot
    /// be written.
    pub(crate) fn asked(path: Option<&PathBuf>) -> Result<Option<Alone>> {
        let Some(path) = path else { return Ok(None) };
        let accepted = format!("a build after `{}`", COMMANDS[0]);
        let none = || Error::field("arguments", "--html", "given to a build without the page", accepted);
        Ok(Some(Alone { page: PAGE.ok_or_else(none)?, file: Target::of("--html", path)? }))
    }

    /// Writes `answer` in the view `view`.
    pub(crate) fn write(&self, view: &'static str, answer: &impl Serialize) -> Result<()> {
        self.file.text(&self.page.alone(view, answer)?)
    }
}

/// JSON that cannot end an HTML script: `<` occurs only within strings, where an escape replaces it.
fn inert(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_stands_in_one_file() {
        let html = format!("<head>{STYLE}</head><body>{SCRIPT}</body>").leak();
        let page = Page { html, script: "let a = '</script>' // $&", style: "p{}" };
        let answer = std::collections::BTreeMap::from([("name", "</script><b>")]);
        let file = page.alone("limits", &answer).unwrap();
        assert_eq!(
            file,
            "<head><style>p{}</style></head><body><script type=\"application/json\" id=\"shown\">\
             {\"view\":\"limits\",\"answer\":{\"name\":\"\\u003c/script>\\u003cb>\"}}</script>\n\
             <script type=\"module\">let a = '<\\/script>' // $&</script></body>"
        );
    }

    #[test]
    fn the_embedded_files_fit_together() {
        let Some(page) = PAGE else { return };
        assert!(page.html.contains(SCRIPT) && page.html.contains(STYLE));
    }
}
