//! Embeds the page that `npm run build` left in `web/dist`, if it is there, and tells the tests whether the data folder is
//! beside the checkout. Runs nothing and writes only to `OUT_DIR`.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::{env, fs};

/// The files of the page; all must be present, or no page is embedded.
const FILES: [&str; 3] = ["index.html", "page.js", "page.css"];

fn main() -> Result<(), Box<dyn Error>> {
    let web = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../web");
    let dist = web.join("dist");
    let built = FILES.iter().all(|name| dist.join(name).is_file());
    // Watching a missing path would rebuild the crate each time; a package has no `web` folder at all.
    let watched = [&dist, &web].into_iter().find(|folder| folder.is_dir());
    let watched = watched.map_or_else(|| "build.rs".to_owned(), |folder| folder.display().to_string());
    writeln!(std::io::stdout(), "cargo::rerun-if-changed={watched}")?;
    let text = |name: &str| format!("include_str!({:?})", dist.join(name).display().to_string());
    let page = if built {
        let [html, script, style] = FILES.map(text);
        format!("Some(Page {{ html: {html}, script: {script}, style: {style} }})")
    } else {
        "None".to_owned()
    };
    fs::write(Path::new(&env::var("OUT_DIR")?).join("page.rs"), page)?;
    writeln!(std::io::stdout(), "cargo::rustc-check-cfg=cfg(shared_data)")?;
    let index = Path::new("../../../shared/README.md");
    if index.is_file() {
        writeln!(
            std::io::stdout(),
            "cargo::rerun-if-changed={}\ncargo::rustc-cfg=shared_data",
            index.display()
        )?;
    }
    Ok(())
}
