//! Values that are read one-sided while they change: [`Cells`] and [`CellLayout`] (not in the
//! paper).
//!
//! A READ is no snapshot: what it finds may be half of the value before and half of the next. So a
//! cell has a number in front of its value and one behind it. Whoever stores changes the number
//! behind first and the one in front last; a READ goes from front to back; so one that finds the
//! two equal has found the value whole (`rma_shm::region`, *Order*). One that does not reads again.
//!
//! Invariant: a region of cells is written by one [`Cells`] alone, and a cell is read by one op. An
//! executor cuts calls at `ExecutorConfig::op_size_max`, which is 4096 unless somebody makes it
//! less: it must be no less than [`CellLayout::len`].

use rma_core::{limits::OP_SIZE_MAX, region::RegisteredRegion};
use thiserror::Error;

/// Bytes of a number.
const WORD: usize = size_of::<u64>();

/// How long the longest value is, in bytes: with its two numbers it is one op.
const VALUE_LEN_MAX: usize = OP_SIZE_MAX as usize - 2 * WORD;

/// The reason why there are no such cells, or nothing was stored.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CellError {
    /// No value has that length, or those of these cells have another.
    #[error("a value of {len} bytes for a cell: give {wanted}")]
    ValueLen {
        /// The length.
        len: usize,
        /// The range that it could be in.
        wanted: CellLens,
    },
    /// There are not so many cells.
    #[error("cell {index} of {count}: give the region more bytes, or a smaller index")]
    NoCell {
        /// The number that was asked for, counted from 0.
        index: u64,
        /// How many there are.
        count: u64,
    },
}

/// How long a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CellLens {
    /// Of any cell.
    Any,
    /// Of the cells that there are: just so many bytes.
    Exactly(usize),
}

impl core::fmt::Display for CellLens {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Any => write!(f, "1 to {VALUE_LEN_MAX}"),
            Self::Exactly(len) => write!(f, "{len}"),
        }
    }
}

/// The layout of cells in a region, one behind the other. Both sides have to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellLayout {
    value_len: usize,
}

/// A value as a READ has found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellValue<'a> {
    /// How often the cell was stored before, that time included: 0 if never. It begins anew with
    /// another region, as when the owner has started again.
    pub number: u64,
    /// The value; zeros if it was never stored.
    pub bytes: &'a [u8],
}

impl CellLayout {
    /// Cells for values of `value_len` bytes, 1 to 4080.
    ///
    /// # Errors
    /// [`CellError::ValueLen`].
    pub const fn new(value_len: usize) -> Result<Self, CellError> {
        if value_len == 0 || value_len > VALUE_LEN_MAX {
            return Err(CellError::ValueLen { len: value_len, wanted: CellLens::Any });
        }
        Ok(Self { value_len })
    }

    /// How many bytes a cell has: what to read.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no cell is empty")]
    pub const fn len(self) -> usize {
        self.value_len.next_multiple_of(WORD) + 2 * WORD
    }

    /// Returns the offset in the region at which a cell begins: reads start there.
    #[must_use]
    pub const fn offset(self, index: u64) -> u64 {
        index.saturating_mul(self.len() as u64)
    }

    /// How many bytes a region must have for so many cells.
    #[must_use]
    pub const fn region_len(self, count: usize) -> usize {
        count.saturating_mul(self.len())
    }

    /// The value in the bytes of a cell, as one READ of all of them has found it. `None` if it was
    /// stored meanwhile: read again.
    ///
    /// # Panics
    /// If there are not as many bytes as a cell has.
    #[must_use]
    pub fn value(self, cell: &[u8]) -> Option<CellValue<'_>> {
        assert_eq!(cell.len(), self.len(), "the bytes of one cell");
        let word = |at: usize| {
            let octets = cell[at..at + WORD].try_into().expect("a word has eight octets");
            u64::from_le_bytes(octets)
        };
        let (front, back) = (word(0), word(self.len() - WORD));
        let bytes = &cell[WORD..WORD + self.value_len];
        (front == back).then_some(CellValue { number: front, bytes })
    }
}

/// The owner's end of cells: who stores. Others read them, one by one, and never see one torn.
///
/// ```
/// # use rma_xdp::{Client, Host, HostConfig, OpType, Permissions};
/// use rma_xdp::{Cells, memory::CellLayout};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let layout = CellLayout::new(20)?;
/// // Where they are.
/// let server = Host::open(HostConfig::udp([127, 0, 0, 47]))?;
/// let region = server.register(layout.region_len(1000), Permissions::READ)?;
/// # let host = Host::open(HostConfig::udp([127, 0, 0, 48]))?;
/// # let grant = server.grant(&region, [127, 0, 0, 48].into(), host.pid(), OpType::Read)?;
/// let mut cells = Cells::new(region, layout);
/// cells.store(7, b"twenty bytes of text")?;
///
/// // Where they are read.
/// let client = Client::new(host.transfers(16)?);
/// let pool = host.buffer_pool(1, layout.len() as u32)?;
/// let text = client.block_on(async {
///     loop {
///         let (read, cell) = client.read(&grant, layout.offset(7), pool.acquire().await).await;
///         read?;
///         if let Some(value) = layout.value(&cell.to_vec()) {
///             break Ok::<_, rma_xdp::TransferError>(value.bytes.to_vec());
///         }
///     }
/// })??;
/// assert_eq!(text, b"twenty bytes of text");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Cells {
    region: RegisteredRegion,
    layout: CellLayout,
}

impl Cells {
    /// Cells in all of a region, which nobody else writes: from its beginning, as many as fit.
    #[must_use]
    pub const fn new(region: RegisteredRegion, layout: CellLayout) -> Self {
        Self { region, layout }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.region.len() / self.layout.len() as u64
    }

    /// Returns the region that they are in, for grants and to be published.
    #[must_use]
    pub const fn region(&self) -> &RegisteredRegion {
        &self.region
    }

    /// Stores a value, all of it, into the cell at `index`, counted from 0. Waits for nobody.
    ///
    /// # Errors
    /// [`CellError`]; then nothing was stored.
    pub fn store(&mut self, index: u64, value: &[u8]) -> Result<(), CellError> {
        let (layout, count) = (self.layout, self.count());
        if value.len() != layout.value_len {
            let wanted = CellLens::Exactly(layout.value_len);
            return Err(CellError::ValueLen { len: value.len(), wanted });
        }
        if index >= count {
            return Err(CellError::NoCell { index, count });
        }
        let at = layout.offset(index);
        let number = |word: Result<u64, _>| u64::from_le(word.expect("a cell is in its region"));
        let next = number(self.region.load(at)).wrapping_add(1).to_le();
        let memory = self.region.memory();
        let stored = memory.store_first(at + (layout.len() - WORD) as u64, next);
        stored.expect("a cell is in its region");
        self.region.write(at + WORD as u64, value).expect("a cell is in its region");
        self.region.store(at, next).expect("a cell is in its region");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicBool, Ordering};
    use std::{sync::Arc, thread};

    use rma_core::region::{NicTag, RegionId};
    use rma_shm::Region;

    use super::*;

    fn cells(layout: CellLayout, count: usize) -> Cells {
        let memory = Arc::new(Region::new(layout.region_len(count)).unwrap());
        Cells::new(RegisteredRegion::new(RegionId::from_bits(1), memory, NicTag(1)), layout)
    }

    fn read(region: &RegisteredRegion, layout: CellLayout, index: u64) -> Vec<u8> {
        let mut bytes = vec![0; layout.len()];
        region.read(layout.offset(index), &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_value_is_read_with_its_number() {
        let layout = CellLayout::new(3).unwrap();
        let mut cells = cells(layout, 2);
        let never = read(cells.region(), layout, 1);
        let value = CellValue { number: 0, bytes: &[0; 3] };
        assert_eq!(layout.value(&never), Some(value));
        cells.store(1, b"one").unwrap();
        cells.store(1, b"two").unwrap();
        let twice = read(cells.region(), layout, 1);
        assert_eq!(layout.value(&twice), Some(CellValue { number: 2, bytes: b"two" }));
        assert_eq!(read(cells.region(), layout, 0), [0; 24], "its neighbour is as it was");
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_with_one_that_would() {
        for len in [0, 4081] {
            let error = CellLayout::new(len).unwrap_err().to_string();
            assert_eq!(error, format!("a value of {len} bytes for a cell: give 1 to 4080"));
        }
        assert_eq!(CellLayout::new(4080).unwrap().len(), OP_SIZE_MAX as usize);
        let mut cells = cells(CellLayout::new(8).unwrap(), 2);
        let told = |result: Result<(), CellError>| result.unwrap_err().to_string();
        assert_eq!(told(cells.store(0, b"four")), "a value of 4 bytes for a cell: give 8");
        let none = "cell 2 of 2: give the region more bytes, or a smaller index";
        assert_eq!(told(cells.store(2, b"88888888")), none);
        assert!(told(cells.store(u64::MAX, b"88888888")).starts_with("cell 18446744073709551615 "));
    }

    #[test]
    fn a_cell_that_is_stored_meanwhile_is_whole_or_known_not_to_be() {
        // Copied word by word, and by wide moves.
        for value_len in [40, 1000] {
            let layout = CellLayout::new(value_len).unwrap();
            let mut cells = cells(layout, 3);
            let (region, stops) = (cells.region().clone(), AtomicBool::new(false));
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut whole = 0_u64;
                    while !stops.load(Ordering::Relaxed) || whole == 0 {
                        let bytes = read(&region, layout, 1);
                        let Some(value) = layout.value(&bytes) else { continue };
                        let first = value.number as u8;
                        assert!(value.bytes.iter().all(|byte| *byte == first), "{value:?}");
                        whole += 1;
                    }
                });
                for number in 1..=20_000_u32 {
                    cells.store(1, &vec![number as u8; value_len]).unwrap();
                }
                stops.store(true, Ordering::Relaxed);
            });
        }
    }

    #[test]
    fn a_store_that_was_begun_shows() {
        let layout = CellLayout::new(8).unwrap();
        let cells = cells(layout, 1);
        cells.region().store(16, 1_u64.to_le()).unwrap();
        assert_eq!(layout.value(&read(cells.region(), layout, 0)), None);
    }
}
