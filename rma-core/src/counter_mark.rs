//! The reservation of blocks of counter values: the high-water mark on a disk (P4).
//!
//! The mark is the first value that nobody has ever reserved. The caller that reserves is alone
//! meanwhile, and takes these steps:
//!
//! 1. read the mark
//! 2. write the new mark into a temporary file, and sync that
//! 3. rename it over the old one, and sync the directory
//! 4. only now hand the block out
//!
//! A rename and not a write in place: after a crash or a power cut at any step the file is the old
//! one or the new one, whole. So a file that is not well-formed is damage, never the trace of a
//! crash, and is refused. With a write in place the two could not be told apart, and to take the
//! older of two marks because the newer one is damaged would repeat values. The price is a second
//! sync, once every few thousand million frames.
//!
//! Where a block lies and how long it is, is chosen so that the mark stays behind the wall clock if
//! the clock allows it: then a mark that is lost later was needed by nobody.
//!
//! What is not here: files, locks and clocks. A [`Disk`] is what a host makes of its file system,
//! and a simulator of nothing.
//!
//! Invariant: a block is handed out only after a mark above it is durable.

use std::io;

use thiserror::Error;

use crate::crypto::CounterBlock;

/// The disk, as a reservation uses it, step by step.
///
/// Each step fails if the disk does, or if whoever takes it ends there.
#[expect(clippy::missing_errors_doc, reason = "said once, for all")]
pub trait Disk {
    /// The mark's file. `None` if there is none.
    fn read_mark(&self) -> io::Result<Option<Vec<u8>>>;
    /// Replaces the contents of the temporary file.
    fn write_temporary(&self, contents: &[u8]) -> io::Result<()>;
    /// The temporary file's contents are durable when this returns.
    fn sync_temporary(&self) -> io::Result<()>;
    /// The temporary file becomes the mark's file.
    fn rename_to_mark(&self) -> io::Result<()>;
    /// The rename is durable when this returns.
    fn sync_directory(&self) -> io::Result<()>;
}

/// A fault that stops a reservation. All that can: a host explains each to people.
#[derive(Debug, Error)]
pub enum Fault {
    /// The disk failed. The mark is the old one or the new one.
    #[error("{doing} failed; see that the disk works: {source}")]
    Io {
        /// The action that failed.
        doing: &'static str,
        /// The error.
        source: io::Error,
    },
    /// These are not the contents of a mark's file: no crash leaves such.
    #[error("the mark is damaged ({} octets); put a right one in its place", .0.len())]
    Damaged(Vec<u8>),
    /// There are not so many values above the mark.
    #[error("the mark is {mark}: {len} values more are not left; begin anew under new keys")]
    UsedUp {
        /// The beginning of the block.
        mark: u64,
        /// How many values it would have.
        len: u64,
    },
    /// There is no mark, and the clock cannot be told.
    #[error("there is no mark, and the system clock is not set; set the clock")]
    NoClock,
}

/// The wanted reservation.
#[derive(Clone, Copy, Debug)]
pub enum Wish {
    /// A host's first block, of values not below `floor`.
    First {
        /// The least value, if it is not 0.
        floor: u64,
    },
    /// The block to go on with, for a host whose last one ended with `after`.
    Next {
        /// The first value above the host's last block.
        after: u64,
    },
}

/// How many values a block has.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// A host's first one; and the least of any.
    pub first: u64,
    /// Any, at most.
    pub most: u64,
}

/// The first value of a block and how many there are. `None` if neither a mark nor the clock says
/// what is fresh.
///
/// A host's first block begins no lower than the clock: if the mark was lost, the clock stands in
/// for it. A later one need not, since its host's earlier blocks did. It lies in what the clock has
/// passed since the mark, is as long as there is room, and ends with the clock: so it does not move
/// the mark ahead of the clock. Only where there is less room than for a short block is it ahead,
/// by less than that.
fn place(
    mark: Option<u64>,
    clock: Option<u64>,
    wish: Wish,
    lengths: Lengths,
) -> Option<(u64, u64)> {
    match (wish, mark) {
        (Wish::First { floor }, _) => {
            // A floor above zero was chosen by somebody who knows what is fresh.
            let floor = (floor > 0).then_some(floor);
            Some((mark.max(clock).max(floor)?, lengths.first))
        }
        // It was lost while the host ran. Without the clock, the marks of others cannot be made
        // good.
        (Wish::Next { after }, None) => Some((clock?.max(after), lengths.first)),
        (Wish::Next { after }, Some(mark)) => {
            // Below `after` only if an older file was put in its place.
            let least = mark.max(after);
            let now = clock.unwrap_or(0);
            let len = now.saturating_sub(least).clamp(lengths.first, lengths.most);
            Some((least.max(now.saturating_sub(len)), len))
        }
    }
}

//= 1rma#A-iv-counter-and-sender
/// Reserves values that nobody has had. The caller sees to it that nobody else does so meanwhile.
/// `clock` is the wall clock in nanoseconds, if it can be told.
///
/// # Errors
/// The reason why no block can be handed out. Then none is: whatever the mark is, nobody will have
/// these values.
pub fn reserve(
    disk: &impl Disk,
    clock: Option<u64>,
    wish: Wish,
    lengths: Lengths,
) -> Result<CounterBlock, Fault> {
    let failed = |doing| move |source| Fault::Io { doing, source };
    let mark = match disk.read_mark().map_err(failed("reading it"))? {
        Some(contents) => Some(parse(&contents).ok_or(Fault::Damaged(contents))?),
        None => None,
    };
    let (first, len) = place(mark, clock, wish, lengths).ok_or(Fault::NoClock)?;
    let end = first.checked_add(len).ok_or(Fault::UsedUp { mark: first, len })?;
    disk.write_temporary(&render(end)).map_err(failed("writing a new one"))?;
    disk.sync_temporary().map_err(failed("syncing the new one"))?;
    disk.rename_to_mark().map_err(failed("renaming the new one"))?;
    disk.sync_directory().map_err(failed("syncing the directory"))?;
    Ok(CounterBlock::new(first, end))
}

/// The contents of the mark's file: the mark twice, once with every bit inverted, so that no damage
/// goes unnoticed.
#[must_use]
pub fn render(mark: u64) -> Vec<u8> {
    format!("1RMA counter 1\nmark  {mark:020}\ncheck {:020}\n", !mark).into_bytes()
}

/// The mark, if these are the contents of its file, octet by octet.
#[must_use]
pub fn parse(contents: &[u8]) -> Option<u64> {
    let text = str::from_utf8(contents).ok()?;
    let mark = text.lines().nth(1)?.strip_prefix("mark  ")?.parse().ok()?;
    (contents == render(mark)).then_some(mark)
}

/// Returns the highest number that a damaged file may have held: the highest number that can still
/// be read in either of its places. Of one that was damaged in one place, that is no lower than the
/// mark.
#[must_use]
pub fn salvage(contents: &[u8]) -> Option<u64> {
    // The places where `render` puts them.
    let number = |at| str::from_utf8(contents.get(at)?).ok()?.parse::<u64>().ok();
    number(21..41).max(number(48..68).map(|check| !check))
}
