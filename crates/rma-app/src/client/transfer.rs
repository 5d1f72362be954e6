//! The future of a transfer: [`Transfer`].

use core::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use std::sync::Arc;

use rma_core::{
    executor::{Outcome, RetryPolicy},
    grant::Grant,
    op::ClassOfService,
};

use super::{
    order::{Order, Publication, What},
    pending::Pending,
};
use crate::{
    buffer::{Bufs, RegionBuf},
    error::TransferError,
    options::TransferOptions,
    transfers::done,
};

/// A read or write under way: [`Client::read`], [`Client::write`], [`Client::read_pieces`],
/// [`Client::write_pieces`], [`Client::write_ordered`]. Submitted when it is first polled.
///
/// [`Client::read`]: super::Client::read
/// [`Client::write`]: super::Client::write
/// [`Client::read_pieces`]: super::Client::read_pieces
/// [`Client::write_pieces`]: super::Client::write_pieces
/// [`Client::write_ordered`]: super::Client::write_ordered
///
/// Gives its buffers back with the result. Dropped before, it gives up the call: no more ops of it
/// are issued, and the buffers are their pools' again when those under way are over.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Transfer<B = RegionBuf> {
    pending: Pending,
    /// The step from buffers back to what the application gave.
    give_back: fn(Bufs) -> B,
}

impl<B> Transfer<B> {
    pub(super) const fn new(pending: Pending, give_back: fn(Bufs) -> B) -> Self {
        Self { pending, give_back }
    }

    /// Class of service, retry policy and timeout at once, in place of those that it had.
    pub fn options(self, options: TransferOptions) -> Self {
        self.with(|order| order.options = options)
    }

    /// With which class of service. Default: latency if one op can do it, or else throughput.
    pub fn class(self, class: ClassOfService) -> Self {
        self.with(|order| order.options = order.options.class(class))
    }

    /// Sets the policy for ops that fail. Default: [`RetryPolicy::DEFAULT`].
    pub fn retry(self, retry: RetryPolicy) -> Self {
        self.with(|order| order.options = order.options.retry(retry))
    }

    /// After how long to give up, from when it is first polled, the time that it waits for a place
    /// included. Default: when the retries are used up, or no op was OK for
    /// [`ExecutorConfig::stall`](rma_core::executor::ExecutorConfig::stall); the time in the line
    /// is not bounded then. A host that answers nobody ends it sooner ([`RetryPolicy::outlast`]).
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|order| order.options = order.options.timeout(timeout))
    }

    /// Transfers only what another transfer of these bytes left missing, such as one with another
    /// replica. The pieces and buffers are those of that transfer, all of them.
    ///
    /// An outcome or an error of this transfer has the numbers of the whole, too: what it leaves
    /// missing is in its outcome, which goes to `remaining` of the next. Its `bytes_done`,
    /// `retries` and [`Missing::tried`] tell of this transfer alone.
    ///
    /// An outcome with more than [`PIECES_MAX`] of `missing` is too much for one transfer. Make
    /// several, one after the other, each with a copy of it that has only as many of these.
    ///
    /// [`PIECES_MAX`]: rma_core::executor::PIECES_MAX
    /// [`Missing::tried`]: rma_core::executor::Missing::tried
    pub fn remaining(self, outcome: &Outcome) -> Self {
        self.with_transfer(|only, _| *only = Some(Arc::new(outcome.clone())))
    }

    /// Begins when everything is over, well or not, that was submitted before it is first polled:
    /// [`Client::fence`](super::Client::fence) and this transfer in one. What is submitted after it
    /// waits for the same, and not for this transfer. If this transfer is refused, there is no
    /// fence either.
    ///
    /// ```no_run
    /// # use rma_xdp::{Client, Grant, RegionBuf};
    /// # async fn join<A: Future, B: Future>(_: A, _: B) -> (A::Output, B::Output) { todo!() }
    /// /// Reads a record, and then its sequence number again. No time is lost between the two, as nobody has to be woken.
    /// async fn read(client: &Client, grant: &Grant, record: RegionBuf, sequence: RegionBuf) {
    ///     let record = client.read(grant, 0, record);
    ///     let sequence = client.read(grant, 0, sequence).fenced();
    ///     let both = join(record, sequence).await; // polls its futures in their order
    /// }
    /// ```
    pub fn fenced(self) -> Self {
        self.with(|order| order.fenced = true)
    }

    /// Does not wait for a place: if none is free when it is first polled, or others wait for it,
    /// it ends with [`TransferError::Full`]. See [`Client`](super::Client) for who waits how.
    pub fn or_full(self) -> Self {
        self.with(|order| order.or_full = true)
    }

    /// A write whose last bytes tell that all of it is there: they go last, when all others are
    /// there, as an ordered WRITE. Whoever sees the last aligned word of it by a load that acquires
    /// (`RegisteredRegion::load`) sees all bytes. The end of the write, in the remote region, is a
    /// multiple of 8, and it has 8 bytes at least; in a write of several pieces that is so of the
    /// last one.
    ///
    /// If it ends with [`TransferError::Unknown`], nobody knows whether those last bytes are there:
    /// all others are.
    pub fn ordered(self) -> Self {
        self.with_transfer(|_, publication| publication.is_ordered = true)
    }

    /// A write that makes an event when all of it is there, in the queue that the region names: its
    /// last bytes go last, as a WRITE_WITH_IMM, for which `grant` is, at the region of the write's
    /// last piece. With [`Transfer::ordered`] besides, they also land in order.
    ///
    /// As of [`Transfer::ordered`], it may be unknown whether that was done. A write that one op
    /// can do needs no grant but this: [`Client::write_with_imm`](super::Client::write_with_imm).
    ///
    /// ```no_run
    /// # use rma_xdp::{Client, Grant, RegionBuf, TransferError};
    /// # async fn publish(
    /// #     client: &Client,
    /// #     (to_write, to_tell): (Grant, Grant),
    /// #     page: RegionBuf,
    /// # ) -> Result<(), TransferError> {
    /// // A megabyte, and then one event with the number 7.
    /// let (result, _page) = client.write(&to_write, 0, page).with_imm(&to_tell, 7).await;
    /// # result
    /// # }
    /// ```
    pub fn with_imm(self, grant: &Grant, immediate: u64) -> Self {
        let imm = Box::new((*grant, immediate));
        self.with_transfer(|_, publication| publication.imm = Some(imm))
    }

    fn with_transfer(self, set: impl FnOnce(&mut Option<Arc<Outcome>>, &mut Publication)) -> Self {
        self.with(|order| match &mut order.what {
            What::Transfer { only, publication, .. } => set(only, publication),
            What::Op { .. } | What::Settle { .. } => unreachable!("it is a transfer"),
        })
    }

    fn with(mut self, set: impl FnOnce(&mut Order)) -> Self {
        self.pending.with(set);
        self
    }
}

impl<B> Future for Transfer<B> {
    type Output = (Result<(), TransferError>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let give_back = self.give_back;
        let polled = self.pending.poll(context);
        polled.map(|(result, bufs)| (result.and_then(done), give_back(bufs)))
    }
}
