//! What a GGUF file holds: `cargo run --example header -- FILE.gguf`.

#![allow(clippy::print_stdout)]

use roofcast::checkpoint::{by_type, compare, gguf};
use roofcast::model::config;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("a GGUF file, please")?;
    let header = gguf::header(&path, std::io::BufReader::new(std::fs::File::open(&path)?))?;
    for (dtype, tensors, elements, bytes) in by_type(&header.tensors) {
        println!("{dtype:8} {tensors:5} tensors {elements:12} values {}", bytes.gb());
    }
    let model = config::read(&path, &path, &gguf::config(&path, &header)?)?;
    println!("{:?}", model.parameters());
    for difference in compare::differences(&model, &header.tensors) {
        println!("{difference:?}");
    }
    Ok(())
}
