//! Scratch.
#![allow(clippy::all, clippy::pedantic, missing_docs)]
fn main() {
    let mut ids = Vec::new();
    for f in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&f).unwrap();
        let c = roofcast::Catalog::parse(&f, &text).unwrap();
        for e in c.models() {
            match roofcast::model::config::read(&e.id, "catalog", &e.config) {
                Ok(m) => { let p = m.parameters();
                    let same = e.published_parameters.map_or("-".into(), |x| if x == p.total { "ok".to_string() } else { format!("PUBLISHED {x}") });
                    println!("{}\t{}\t{}\t{}\t{}\t{}\t{}", e.id, p.total, p.active, p.embedding, p.lm_head, same, m.assumptions.join("; ")) }
                Err(x) => println!("{}\tERR {x}", e.id),
            }
            ids.push(e.id.clone());
        }
    }
}
