//! Buffers that are lent to the NIC: [`BufferPool`] and [`RegionBuf`].
//!
//! A buffer is a range of a registered region. There is one handle to it, which cannot be cloned,
//! and a call takes it: so nobody reads or changes the bytes while the NIC may, and the type system
//! says so. It is not a slice, as remote hosts write registered memory with no regard to Rust's
//! borrows; bytes are copied in and out.
//!
//! Invariant: each buffer of a pool is either free, or in one [`RegionBuf`], which an application
//! or a call has.

use core::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

#[cfg(feature = "channel")]
use rma_channel::SendError;
use rma_core::{
    executor::{CallError, Piece},
    grant::Grant,
    portal::Source,
    region::RegisteredRegion,
};
use rma_shm::{Forked, OutOfBounds, Process};
use thiserror::Error;

/// A fixed number of equal buffers in one registered region. Clones are the same pool.
///
/// ```
/// # use rma_xdp::{BufferPool, Host, HostConfig, Permissions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let host = Host::open(HostConfig::udp([127, 0, 0, 23]))?;
/// let pool = host.buffer_pool(2, 4096)?; // or BufferPool::new, over a region of your own
/// let mut buf = pool.try_acquire().expect("both are free");
/// buf.set_len(5);
/// buf.write(0, b"bytes")?; // copied in and out: there are no slices of registered memory
/// assert_eq!(buf.to_vec(), b"bytes");
///
/// let other = pool.try_acquire();
/// assert!(pool.try_acquire().is_none()); // `acquire` would wait
/// drop((buf, other)); // they are the pool's again
/// assert_eq!(pool.free(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    region: RegisteredRegion,
    buffer_len: u32,
    count: u32,
    state: Mutex<State>,
    /// In a child a thread of the parent's may hold the lock, for ever.
    process: Process,
}

#[derive(Debug)]
struct State {
    /// The buffer used last is on top: it is still in the cache.
    free: Vec<u32>,
    /// The futures that wait for a buffer, in the order of coming: ticket and waker.
    waiting: VecDeque<(u64, Waker)>,
    /// The ticket of the next future that waits.
    next_ticket: u64,
}

/// The reason why there is no pool of this shape.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BufferPoolError {
    /// There is nothing in a buffer.
    #[error("a pool of buffers of 0 bytes; give them at least 1")]
    EmptyBuffers,
    /// The region has no room for a buffer.
    #[error("no buffer of {buffer_len} bytes fits into a region of {region_len}; make it larger")]
    NoBuffer {
        /// The length of the region in bytes.
        region_len: u64,
        /// The length that its buffers should have.
        buffer_len: u32,
    },
    /// No memory is that large.
    #[error("{count} buffers of {buffer_len} bytes are more than this machine can address")]
    TooLarge {
        /// How many buffers were asked for.
        count: u32,
        /// How long.
        buffer_len: u32,
    },
}

impl BufferPool {
    /// How many bytes a region must have for so many buffers.
    ///
    /// # Errors
    /// If they would have nothing in them, or are more than this machine can address.
    pub fn region_len(count: u32, buffer_len: u32) -> Result<usize, BufferPoolError> {
        if buffer_len == 0 {
            return Err(BufferPoolError::EmptyBuffers);
        }
        if count == 0 {
            return Err(BufferPoolError::NoBuffer { region_len: 0, buffer_len });
        }
        let len = usize::try_from(u64::from(count) * u64::from(buffer_len)).ok();
        len.ok_or(BufferPoolError::TooLarge { count, buffer_len })
    }

    /// As many buffers of `buffer_len` bytes as fit into `region`, at most 2³² - 1.
    ///
    /// The pool keeps its own buffers apart. An application that keeps a clone of `region`, or a
    /// host that has a grant for it, can reach the bytes of all of them: a region with
    /// [`Permissions::NONE`](rma_core::region::Permissions::NONE) that is used for nothing else has
    /// no such surprises.
    ///
    /// # Errors
    /// If not even one fits.
    pub fn new(region: RegisteredRegion, buffer_len: u32) -> Result<Self, BufferPoolError> {
        if buffer_len == 0 {
            return Err(BufferPoolError::EmptyBuffers);
        }
        let count = u32::try_from(region.len() / u64::from(buffer_len)).unwrap_or(u32::MAX);
        if count == 0 {
            return Err(BufferPoolError::NoBuffer { region_len: region.len(), buffer_len });
        }
        let state =
            State { free: (0..count).rev().collect(), waiting: VecDeque::new(), next_ticket: 0 };
        let (state, process) = (Mutex::new(state), Process::this());
        Ok(Self { shared: Arc::new(Shared { region, buffer_len, count, state, process }) })
    }

    /// A buffer, as long as all of the pool are, with whatever bytes its last user left; `None` if
    /// none is free. In a child of this process none is.
    #[must_use]
    pub fn try_acquire(&self) -> Option<RegionBuf> {
        let index = self.shared.state().ok()?.free.pop()?;
        Some(self.lend(index))
    }

    /// Waits for a buffer.
    ///
    /// # Panics
    /// The future, in a child of this process: the buffers are its parent's, and none would ever
    /// come.
    pub const fn acquire(&self) -> Acquire<'_> {
        Acquire { pool: self, ticket: None }
    }

    /// How many buffers are free. Those that calls have which were dropped are not, and in a child
    /// of this process none is.
    #[must_use]
    pub fn free(&self) -> usize {
        self.shared.state().map_or(0, |state| state.free.len())
    }

    /// How many buffers there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shared.count as usize
    }

    /// How many bytes each has.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        self.shared.buffer_len as usize
    }

    /// The region, to deregister it when the pool is no longer needed.
    #[must_use]
    pub fn region(&self) -> &RegisteredRegion {
        &self.shared.region
    }

    fn lend(&self, index: u32) -> RegionBuf {
        let len = self.shared.buffer_len;
        RegionBuf { shared: self.shared.clone(), index, len }
    }
}

impl Shared {
    fn state(&self) -> Result<MutexGuard<'_, State>, Forked> {
        self.process.check()?;
        // Nothing that could panic happens under this lock.
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wakes the first of those who wait, if there is a buffer for it.
    fn pass_on(state: MutexGuard<'_, State>) {
        let mut state = state;
        let next = if state.free.is_empty() { None } else { state.waiting.pop_front() };
        // Whatever a waker does, it finds the lock free.
        drop(state);
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }
}

/// Waits for a buffer: [`BufferPool::acquire`]. The future that comes first is woken first.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Acquire<'a> {
    pool: &'a BufferPool,
    /// Of this future, once it had to wait.
    ticket: Option<u64>,
}

impl Future for Acquire<'_> {
    type Output = RegionBuf;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<RegionBuf> {
        let this = &mut *self;
        let mut state = this.pool.shared.state().unwrap_or_else(|forked| panic!("{forked}"));
        if let Some(index) = state.free.pop() {
            // Dropping this future passes on what else is free.
            drop(state);
            return Poll::Ready(this.pool.lend(index));
        }
        let ticket = *this.ticket.get_or_insert_with(|| {
            state.next_ticket += 1;
            state.next_ticket
        });
        let waker = context.waker().clone();
        let old = match state.waiting.iter_mut().find(|(waiting, _)| *waiting == ticket) {
            Some((_, old)) => Some(mem::replace(old, waker)),
            None => {
                state.waiting.push_back((ticket, waker));
                None
            }
        };
        // The lock first: with its last waker, a task may go that has a buffer.
        drop(state);
        drop(old);
        Poll::Pending
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket
            && let Ok(mut state) = self.pool.shared.state()
        {
            let place = state.waiting.iter().position(|(waiting, _)| *waiting == ticket);
            let old = place.and_then(|place| state.waiting.remove(place));
            // It may have been woken for a buffer that it did not take.
            Shared::pass_on(state);
            drop(old);
        }
    }
}

/// A buffer of a [`BufferPool`], of which there is one handle: the owner of that has the bytes to
/// itself, and a [`Client`](crate::Client) that transfers them has it meanwhile. It goes back when
/// it is dropped; the next to have it finds its bytes.
pub struct RegionBuf {
    shared: Arc<Shared>,
    index: u32,
    len: u32,
}

impl RegionBuf {
    /// How many bytes a call transfers, and what can be read and written.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it has been made to have no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes it has at most.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.buffer_len as usize
    }

    /// Makes it shorter, or longer again.
    ///
    /// # Panics
    /// If `len` is more than its capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} bytes of a buffer of {}", self.capacity());
        self.len = len as u32;
    }

    /// Copies `bytes` into the buffer.
    ///
    /// # Errors
    /// If they do not fit at `offset`; then nothing is copied.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let at = self.place(offset, bytes.len())?;
        self.shared.region.write(at, bytes)
    }

    /// Copies bytes out of the buffer.
    ///
    /// # Errors
    /// If it has not that many at `offset`; then `bytes` is unchanged.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        let at = self.place(offset, bytes.len())?;
        self.shared.region.read(at, bytes)
    }

    /// A copy of all its bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.read(0, &mut bytes).expect("they are all of them");
        bytes
    }

    /// A part of the buffer as the local end of a call: piece number `index`.
    pub(crate) fn part<'a>(
        &'a self,
        index: usize,
        it: &'a BufPiece,
    ) -> Result<Piece<'a>, CallError> {
        let &BufPiece { ref grant, remote_offset, buf_offset, len, .. } = it;
        // Beyond are others' buffers.
        let local_offset =
            self.place(buf_offset, len).map_err(|error| CallError::OutsideBuffer {
                piece: index,
                buffer_len: error.region_len,
                offset: error.offset,
                len: error.len,
            })?;
        let local = &self.shared.region;
        Ok(Piece { grant, remote_offset, local, local_offset, len: len as u64 })
    }

    /// The whole buffer as the local end of a call, with `remote_offset` of what `grant` is for.
    pub(crate) fn piece<'a>(&'a self, grant: &'a Grant, remote_offset: u64) -> Piece<'a> {
        Piece {
            grant,
            remote_offset,
            local: &self.shared.region,
            local_offset: self.start(),
            len: self.len.into(),
        }
    }

    /// The whole buffer as what an op moves.
    pub(crate) fn source(&self) -> Source<'_> {
        Source { region: &self.shared.region, offset: self.start(), len: self.len }
    }

    /// Returns the bytes behind the buffer's first ones, which a channel writes with those beside
    /// it: so many before and behind, padded to 8.
    #[cfg(feature = "channel")]
    pub(crate) fn message(
        &self,
        before: u64,
        behind: u64,
    ) -> Result<(&RegisteredRegion, core::ops::Range<u64>), SendError> {
        let len = u64::from(self.len);
        let is_alone = (before, behind) == (0, 0);
        let end = if is_alone { len } else { len.next_multiple_of(8) + behind };
        // Beyond are others' buffers.
        if end > self.shared.buffer_len.into() {
            let capacity = self.shared.buffer_len.into();
            return Err(SendError::Place {
                start: before,
                end: len,
                len: capacity,
                before,
                behind,
            });
        }
        Ok((&self.shared.region, self.start() + before..self.start() + len))
    }

    fn start(&self) -> u64 {
        u64::from(self.index) * u64::from(self.shared.buffer_len)
    }

    /// Returns the offset in the region of `len` bytes at `offset`, if there are so many.
    fn place(&self, offset: usize, len: usize) -> Result<u64, OutOfBounds> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len() => Ok(self.start() + offset as u64),
            _ => Err(OutOfBounds {
                offset: offset as u64,
                len: len as u64,
                region_len: self.len.into(),
            }),
        }
    }
}

/// A run of bytes that is one both in a remote region and in a buffer: what a [`Piece`] is to a
/// [`Call`], for [`Client::read_pieces`] and [`Client::write_pieces`].
///
/// [`Call`]: rma_core::executor::Call
/// [`Client::read_pieces`]: crate::Client::read_pieces
/// [`Client::write_pieces`]: crate::Client::write_pieces
#[derive(Clone, Copy, Debug)]
pub struct BufPiece {
    /// The permission to read or write the remote bytes.
    pub grant: Grant,
    /// The offset in the remote region, in bytes.
    pub remote_offset: u64,
    /// In which of the transfer's buffers, by its place among them.
    pub buf: usize,
    /// The offset in the buffer, in bytes.
    pub buf_offset: usize,
    /// How many bytes; at least one.
    pub len: usize,
}

/// All buffers of a call.
#[derive(Debug)]
pub(crate) enum Bufs {
    None,
    One(RegionBuf),
    Many(Vec<RegionBuf>),
}

impl Bufs {
    /// The only one there is.
    pub(crate) fn one(self) -> RegionBuf {
        match self {
            Self::One(buf) => buf,
            other => unreachable!("a call of one buffer has {}", other.as_ref().len()),
        }
    }

    pub(crate) fn many(self) -> Vec<RegionBuf> {
        match self {
            Self::None => Vec::new(),
            Self::One(buf) => vec![buf],
            Self::Many(bufs) => bufs,
        }
    }
}

impl AsRef<[RegionBuf]> for Bufs {
    fn as_ref(&self) -> &[RegionBuf] {
        match self {
            Self::None => &[],
            Self::One(buf) => core::slice::from_ref(buf),
            Self::Many(bufs) => bufs,
        }
    }
}

impl fmt::Debug for RegionBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionBuf").field("index", &self.index).field("len", &self.len).finish()
    }
}

impl Drop for RegionBuf {
    fn drop(&mut self) {
        if let Ok(mut state) = self.shared.state() {
            state.free.push(self.index);
            Shared::pass_on(state);
        }
    }
}
