//! The future of one recorded op: [`Op`] (not in the paper).

use core::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use rma_core::{
    executor::{Outcome, RetryPolicy},
    op::ClassOfService,
};

use super::{order::Order, pending::Pending};
use crate::{
    buffer::{Bufs, RegionBuf},
    error::TransferError,
    options::TransferOptions,
    settlement::Settlement,
    transfers::{done, well},
};

/// One recorded op under way, or a question about one: [`Client::send`], [`Client::notify`],
/// [`Client::write_with_imm`], [`Client::compare_swap`], [`Client::fetch_add`],
/// [`Client::settle`]. Submitted when it is first polled. `O` is what it comes to.
///
/// The op is applied at most once, whatever is lost on the way, and its result says which:
///
/// | result | applied? |
/// |---|---|
/// | `Ok` | yes, once |
/// | [`TransferError::Unknown`] | yes, once, or no: [`Client::settle`] asks |
/// | [`TransferError::Unfinished`] | the engine is gone, and nobody will tell |
/// | any other error | no, and it never will be |
///
/// Dropped before, it gives up the op: what has not been issued never is. What is under way may
/// still be applied, and nobody is told; its buffer is its pool's again when that is over.
///
/// [`Client::send`]: super::Client::send
/// [`Client::notify`]: super::Client::notify
/// [`Client::write_with_imm`]: super::Client::write_with_imm
/// [`Client::compare_swap`]: super::Client::compare_swap
/// [`Client::fetch_add`]: super::Client::fetch_add
/// [`Client::settle`]: super::Client::settle
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Op<O> {
    pending: Pending,
    /// The step from the call's end to the application's result.
    finish: fn(Result<Outcome, TransferError>, Bufs) -> O,
}

impl<O> Op<O> {
    /// Class of service, retry policy and timeout at once, in place of those that it had.
    pub fn options(self, options: TransferOptions) -> Self {
        self.with(|order| order.options = options)
    }

    /// With which class of service. Default: latency, which a question has in any case.
    pub fn class(self, class: ClassOfService) -> Self {
        self.with(|order| order.options = order.options.class(class))
    }

    /// Sets the policy for an op that was not applied: for how long to offer it to a queue that has
    /// no receive posted ([`RetryPolicy::not_ready`]), and how often to issue it again after other
    /// failures. Default: [`RetryPolicy::DEFAULT`]. A question has no policy: it is asked until it
    /// is answered, or time is over.
    pub fn retry(self, retry: RetryPolicy) -> Self {
        self.with(|order| order.options = order.options.retry(retry))
    }

    /// After how long to give up, from when it is first polled, the time that it waits for a place
    /// included. If the op is under way then, its target is asked about it once. Default: as of
    /// [`Transfer::timeout`](super::Transfer::timeout); of a question four timeouts of the NIC.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|order| order.options = order.options.timeout(timeout))
    }

    /// Begins when everything is over, well or not, that was submitted before it is first polled:
    /// see [`Transfer::fenced`](super::Transfer::fenced).
    pub fn fenced(self) -> Self {
        self.with(|order| order.fenced = true)
    }

    /// Does not wait for a place: see [`Transfer::or_full`](super::Transfer::or_full).
    pub fn or_full(self) -> Self {
        self.with(|order| order.or_full = true)
    }

    fn with(mut self, set: impl FnOnce(&mut Order)) -> Self {
        self.pending.with(set);
        self
    }
}

impl Op<(Result<(), TransferError>, RegionBuf)> {
    /// An op that gives its buffer back.
    pub(super) const fn of_buffer(pending: Pending) -> Self {
        Self { pending, finish: |result, bufs| (result.and_then(done), bufs.one()) }
    }
}

impl Op<Result<(), TransferError>> {
    /// An op that has no buffer, and finds nothing.
    pub(super) const fn plain(pending: Pending) -> Self {
        Self { pending, finish: |result, _| result.and_then(done) }
    }
}

impl Op<Result<u64, TransferError>> {
    /// An op that finds a word.
    pub(super) const fn atomic(pending: Pending) -> Self {
        Self { pending, finish: |result, _| result.and_then(well).map(found) }
    }
}

impl Op<Result<Settlement, TransferError>> {
    /// Asks what became of another op.
    pub(super) const fn question(pending: Pending) -> Self {
        Self { pending, finish: |result, _| result.and_then(well).map(Settlement::of) }
    }
}

/// Returns the word that an atomic found, if it is OK.
fn found(outcome: Outcome) -> u64 {
    outcome.result.expect("an atomic that is OK found a word")
}

impl<O> Future for Op<O> {
    type Output = O;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<O> {
        let finish = self.finish;
        self.pending.poll(context).map(|(result, bufs)| finish(result, bufs))
    }
}
