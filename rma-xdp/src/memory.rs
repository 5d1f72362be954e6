//! Memory of regions, buffers and [`Cells`](crate::Cells): settings, parts and errors.

#[doc(inline)]
pub use rma_app::{Acquire, BufPiece, BufferPoolError, CellError, CellLayout, CellLens, CellValue};
#[doc(inline)]
pub use rma_core::{error::RegionError, region::RegionId};
#[doc(inline)]
pub use rma_shm::{Backing, Forked, HugePageSize, MemoryError, OutOfBounds, Shortage};
