//! BurstGPT (github.com/HPMLL/BurstGPT): `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`, with
//! times in seconds from the start; later files have more columns. A failed request has no response tokens and is an
//! error here; the `without_fails` files omit failed requests.

use super::{Recording, csv, plain};
use roofcast_facts::error::Result;

const COLUMNS: [&str; 3] = ["Timestamp", "Request tokens", "Response tokens"];

pub(super) fn read(text: &str, recording: &mut Recording) -> Result<()> {
    csv::rows(text, &COLUMNS, 3, recording, |row, recording| {
        let at = row.seconds(0, recording)?;
        let request = plain(at, row.tokens(1, recording)?, row.tokens(2, recording)?);
        recording.add(row.line, request)
    })
}
