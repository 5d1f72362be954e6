//! Memory that several threads or several processes look at together: lock-free rings of
//! 64-byte lines, the flag that says whether an engine sleeps, and registered-region memory.
//!
//! This crate does not know the protocol. What a [`Line`] means, who may name which bytes of a
//! [`Region`], and when a frame has been believed are decided by `rma-core`.
//!
//! # Who may trust what
//!
//! The other side of everything in here is *untrusted input*: an application may be buggy or
//! hostile, and what it writes while we read must be neither undefined behaviour nor unbounded
//! work. The means are the same everywhere: all shared memory is made of atomic words, each is
//! loaded once, and what was loaded is checked before it is used.
//!
//! | module | what it is |
//! |---|---|
//! | [`mapping`] | [`Mapping`]: memory with an owner, of this process or shared with others; all else lies in one |
//! | [`line`](mod@line) | [`Line`]: 64 bytes, one cache line, any bit pattern valid |
//! | [`spsc`] | [`ring`]: a bounded queue of lines from one thread to one other |
//! | [`flags`] | [`Flags`]: which of many rings are worth a look, 64 in a word |
//! | [`doorbell`] | [`Doorbell`]: whether the engine, or an application, sleeps in the kernel and must be woken |
//! | [`process`] | [`Process`]: what is of no use in a child that was forked |
//! | [`shortage`] | [`Shortage`]: the limit of the process that an error of the system is about |
//! | [`mod@prefetch`] | [`prefetch()`]: asking for cache lines early |
//! | [`region`] | [`Region`]: memory that remote hosts may read and write, by copies only |
//!
//! ```
//! use rma_shm::{Line, ring};
//!
//! let (mut producer, mut consumer) = ring(64)?;
//! producer.push(&Line([7; 8])).expect("the ring is empty");
//! assert_eq!(consumer.pop(), Some(Line([7; 8])));
//! assert_eq!(consumer.pop(), None);
//! # Ok::<(), rma_shm::RingError>(())
//! ```

pub mod doorbell;
mod error;
pub mod flags;
pub mod line;
pub mod mapping;
pub mod prefetch;
pub mod process;
pub mod region;
pub mod shortage;
pub mod spsc;
mod sync;
mod wide;

pub use doorbell::Doorbell;
pub use error::MemoryError;
pub use flags::Flags;
pub use line::Line;
pub use mapping::{Label, LayoutError, Mapping};
pub use prefetch::{prefetch, prefetch_expected, prefetch_value};
pub use process::{Forked, Process, Worker};
pub use region::{Backing, HugePageSize, OutOfBounds, Region, WordError};
pub use shortage::{Shortage, Told};
pub use spsc::{Capacity, Consumer, Full, LinesEach, Producer, RingError, RingMemory, ring};
