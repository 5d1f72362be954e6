//! Futures for transfers, messages and atomics: [`Client`], on any async executor or none.
//!
//! # Buffers
//!
//! A call takes its [`RegionBuf`], or several, and gives them back with its result. A future that
//! is dropped before gives up its call; the buffers go back to their pools when the NIC is done
//! with them, and not before: so no late frame ever lands in memory that somebody else has
//! meanwhile.
//!
//! # Who makes progress
//!
//! Every future that is polled polls the executor. Between that somebody must: a thread of the
//! client's own ([`Client::start`]), a thread of the application's ([`Client::poller`]), or the
//! thread that blocks on the future ([`Client::block_on`]), which saves the way from one thread to
//! the other.

mod driven;
mod inbox;
mod line;
mod op;
mod order;
mod pending;
mod receiver;
mod recorded;
mod remaining;
mod request;
mod tasks;
mod transfer;

use core::pin::{Pin, pin};
use std::sync::Arc;

use rma_core::{grant::Grant, op::OpType, receive_queue::ReceiveQueue};

pub use crate::polling::handle::Poller;
use crate::{
    buffer::{BufPiece, Bufs, RegionBuf},
    error::{StartError, WaitError},
    polling::{handle::Handle, seat::block_on, shared::Polled},
    transfers::Transfers,
    wait::Awaited,
};
use driven::Driven;
pub use op::Op;
use order::{Extent, Order, Publication, What};
use pending::Pending;
pub use receiver::{Message, Receiver, Recv};
use tasks::State;
pub use transfer::Transfer;

/// Reads and writes, messages and atomics as futures, over [`Transfers`]. Clones share it; they
/// may be used in any thread.
///
/// | | | comes to |
/// |---|---|---|
/// | any number of bytes | [`Client::read`], [`Client::write`], [`Client::read_pieces`], [`Client::write_pieces`], and [`Client::write_ordered`] and [`Transfer::with_imm`], whose last op publishes | buffers, when all bytes are there |
/// | one recorded op | [`Client::send`], [`Client::notify`], [`Client::write_with_imm`] | when the event is there |
/// | | [`Client::compare_swap`], [`Client::fetch_add`] | the word before |
/// | an op in doubt | [`Client::settle`] | what became of it |
/// | what others send | [`Client::receiver`], [`Receiver::recv`] | a [`Message`] |
///
/// There may be more futures than the executor has places for calls ([`ExecutorConfig::calls`],
/// 1024 by default). The others wait for one: first come, first served in each class of service,
/// the classes in turns, and nobody passes a fence. Transfers of the throughput class leave an
/// eighth of the places free, so that small ones need not wait for the end of large ones. Whoever
/// polls gives a place on as soon as a call is over; the future that gets it need not be polled for
/// that, and one that is dropped while it waits gives its place in the line up and its buffers back
/// at once. [`Client::set_waiting_max`] bounds how many wait, and [`Transfer::or_full`] is for an
/// application that does not wait.
///
/// [`ExecutorConfig::calls`]: rma_core::executor::ExecutorConfig::calls
///
/// When the last clone and the last future are gone, calls that were given up are waited for by the
/// thread that polls, or else by a thread that lives as long as they do, which promise P1 bounds.
/// Then the portal's slots are the host's again.
///
/// ```
#[doc = include_str!("../examples/async_read.rs")]
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    handle: Arc<Handle<State>>,
}

impl Client {
    /// A client whose futures make progress when they are polled, in [`Client::block_on`], and
    /// while a [`Poller`] runs. Starts no thread.
    ///
    /// # Panics
    /// If a call of the executor is not over, or its outcome has not been taken: nobody would take
    /// it.
    #[must_use]
    pub fn new(executor: Transfers) -> Self {
        let sleep = executor.sleep().cloned();
        Self { handle: Arc::new(Handle::new(State::new(executor), sleep)) }
    }

    /// A client with a thread that polls for it, and sleeps when there is nothing to do, as
    /// [`Transfers::set_idle`] said. It ends after the last client and its last call.
    ///
    /// # Errors
    /// If the engine is inline, or there can be no thread.
    ///
    /// # Panics
    /// As [`Client::new`].
    pub fn start(executor: Transfers) -> Result<Self, StartError> {
        let client = Self::new(executor);
        client.handle.start()?;
        Ok(client)
    }

    /// Returns the poller that a thread of the application's runs instead of [`Client::start`]'s.
    pub fn poller(&self) -> Poller {
        self.handle.poller()
    }

    /// Reads as many bytes as `buf` has, from `remote_offset` of the granted region.
    pub fn read(&self, grant: &Grant, remote_offset: u64, buf: RegionBuf) -> Transfer {
        self.transfer_whole(OpType::Read, grant, remote_offset, buf)
    }

    /// Writes all bytes of `buf`, to `remote_offset` of the granted region.
    pub fn write(&self, grant: &Grant, remote_offset: u64, buf: RegionBuf) -> Transfer {
        self.transfer_whole(OpType::Write, grant, remote_offset, buf)
    }

    fn transfer_whole(
        &self,
        op_type: OpType,
        grant: &Grant,
        remote_offset: u64,
        buf: RegionBuf,
    ) -> Transfer {
        let extent = Extent::Whole { grant: *grant, remote_offset };
        self.transfer(op_type, extent, Bufs::One(buf), Bufs::one)
    }

    /// Reads several runs of bytes, all from one host, into `bufs`: one call, with the pieces of a
    /// [`Call`](rma_core::executor::Call). Which byte comes first nobody knows; the buffers come
    /// back together, in their order.
    ///
    /// ```no_run
    /// # use rma_xdp::{BufferPool, Client, Grant, RegionBuf, TransferError, memory::BufPiece};
    /// /// A header and a body that lie apart, into a buffer of their own each.
    /// async fn fetch(
    ///     (client, pool): (&Client, &BufferPool),
    ///     (header, body): (Grant, Grant),
    /// ) -> Result<Vec<RegionBuf>, TransferError> {
    ///     let bufs = vec![pool.acquire().await, pool.acquire().await];
    ///     let pieces = vec![
    ///         BufPiece { grant: header, remote_offset: 0, buf: 0, buf_offset: 0, len: 64 },
    ///         BufPiece { grant: body, remote_offset: 8192, buf: 1, buf_offset: 0, len: 100_000 },
    ///     ];
    ///     let (result, bufs) = client.read_pieces(pieces, bufs).await;
    ///     result.map(|()| bufs)
    /// }
    /// ```
    ///
    /// # Panics
    /// If a piece is in a buffer that is not among `bufs`.
    pub fn read_pieces(
        &self,
        pieces: Vec<BufPiece>,
        bufs: Vec<RegionBuf>,
    ) -> Transfer<Vec<RegionBuf>> {
        self.transfer_pieces(OpType::Read, pieces, bufs)
    }

    /// Writes several runs of bytes of `bufs`, all to one host: see [`Client::read_pieces`].
    ///
    /// # Panics
    /// As [`Client::read_pieces`].
    pub fn write_pieces(
        &self,
        pieces: Vec<BufPiece>,
        bufs: Vec<RegionBuf>,
    ) -> Transfer<Vec<RegionBuf>> {
        self.transfer_pieces(OpType::Write, pieces, bufs)
    }

    fn transfer_pieces(
        &self,
        op_type: OpType,
        pieces: Vec<BufPiece>,
        bufs: Vec<RegionBuf>,
    ) -> Transfer<Vec<RegionBuf>> {
        let count = bufs.len();
        for (index, &BufPiece { buf, .. }) in pieces.iter().enumerate() {
            assert!(buf < count, "piece {index} is in buffer {buf} of {count}");
        }
        self.transfer(op_type, Extent::Pieces(pieces), Bufs::Many(bufs), Bufs::many)
    }

    fn transfer<B>(
        &self,
        op_type: OpType,
        extent: Extent,
        bufs: Bufs,
        give_back: fn(Bufs) -> B,
    ) -> Transfer<B> {
        let publication = Publication::default();
        let order = Order::new(What::Transfer { op_type, extent, only: None, publication });
        Transfer::new(Pending::new(self.handle.clone(), order, bufs), give_back)
    }

    /// Awaits the messages and events of `queue`, whose receives are all posted from now on. Make
    /// regions with events of it before.
    ///
    /// The queue must be bound to the portal of this client's executor: so make the portal, then
    /// the queue, then the executor over the portal. Events of a queue that is bound to another
    /// portal, or to none, are seen when this client is polled for something else, and wake nobody
    /// who sleeps.
    #[must_use]
    pub fn receiver(&self, queue: ReceiveQueue) -> Receiver {
        Receiver::new(self.handle.clone(), queue)
    }

    /// From now on, what is submitted waits until everything that was submitted before is over,
    /// well or not; also by clones of this client. A transfer is submitted when it is first polled:
    /// for one alone there is [`Transfer::fenced`].
    pub fn fence(&self) {
        self.handle.shared().with_own(|state, _| state.fence());
    }

    /// Runs a future to its end on this thread, which polls the executor meanwhile if no other
    /// thread does. It spins, then sleeps, as [`Transfers::set_idle`] said. Several threads may do
    /// this at once.
    ///
    /// # Errors
    /// If the engine is inline: `InlineHost::block_on` of the crate `rma-xdp` is for those.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, WaitError> {
        block_on(self.handle.shared(), pin!(future))
    }

    /// Makes what progress can be made, and wakes the futures that can go on. Returns how much
    /// there was to do: in a child that was forked nothing. For applications that poll in a loop of
    /// their own.
    pub fn poll(&self) -> usize {
        self.handle.shared().with(State::turn).unwrap_or(0)
    }

    /// How many calls are not over, those of dropped futures among them. In a child that was forked
    /// none.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.handle.shared().with(|state, _| state.calls()).unwrap_or(0)
    }

    /// How many transfers wait for a place among the calls. In a child that was forked none.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.handle.shared().with(|state, _| state.waiting()).unwrap_or(0)
    }

    /// From now on, at most so many transfers wait for a place among the calls; the next ones end
    /// with [`TransferError::Full`](crate::TransferError::Full). Those that wait go on waiting.
    /// Default: any number, as each of them is a future of the application's and has buffers of its
    /// own, so that a [`BufferPool`](crate::BufferPool) bounds them already.
    ///
    /// ```no_run
    /// # use rma_xdp::{Client, Transfers, Grant, RegionBuf, TransferError};
    /// # type Served = Result<(), TransferError>;
    /// # async fn serve(executor: Transfers, grant: Grant, buf: RegionBuf) -> Served {
    /// let client = Client::new(executor);
    /// client.set_waiting_max(5000); // more than that is overload: better to say so at once
    /// match client.read(&grant, 0, buf).await {
    ///     (Err(TransferError::Full { .. }), _buf) => println!("overloaded"),
    ///     (result, _buf) => result?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_waiting_max(&self, transfers: usize) {
        self.handle.shared().with_own(|state, _| state.waiting_max = transfers);
    }

    /// Returns the end of `future`, to be waited for by whoever turns an inline engine: this client
    /// is polled between the future's wake-ups. The future may also wait for what other threads do.
    pub fn driving<'a, F: Future>(
        &'a self,
        future: Pin<&'a mut F>,
    ) -> impl Awaited<Found = F::Output, Error = WaitError> {
        Driven::new(self.handle.shared(), future)
    }
}

#[cfg(test)]
mod tests;
