//! Writes the seed corpus of the fuzz targets: honest frames from simulated runs for `wire`,
//! packets of them for `packet`, short stories of two NICs for `nic`, of channels for `record` and
//! of StaR for `star_station` and `star_ring`, the frames of StaR's golden vectors for `star_wire`,
//! and for `keys`, `policy` and `certificate` what the key service reads.
//! Run it from the root of the repository:
//!
//! ```text
//! cargo run -p rma-fuzz-bodies --example fuzz_corpus
//! ```
//!
//! Stories are told here and stay as they are; frames are those that the simulator sends today.

mod frames;
mod keys;
mod packets;
mod records;
mod star;
mod stories;
mod story;

use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let corpus = Path::new("fuzz/corpus");
    let frames = frames::all();
    let packets = packets::all(&frames);
    let (nic, record) = (stories::all(), records::all());
    for (target, files) in [
        ("wire", frames),
        ("packet", packets),
        ("nic", nic),
        ("record", record),
        ("star_wire", star::frames()?),
        ("star_station", star::stations()),
        ("star_ring", star::rings()),
        ("keys", keys::messages()?),
        ("policy", keys::policies()),
        ("certificate", keys::certificates()),
    ] {
        let directory = corpus.join(target);
        fs::create_dir_all(&directory)?;
        for (name, bytes) in files {
            fs::write(directory.join(name), bytes)?;
        }
    }
    Ok(())
}
