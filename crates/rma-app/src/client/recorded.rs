//! Recorded ops of a [`Client`]: messages, events and atomics as futures, and SETTLE (not in the
//! paper).

use rma_core::{grant::Grant, outcome::OpName};

use super::{
    Client,
    op::Op,
    order::{BufOp, Order, What},
    pending::Pending,
    transfer::Transfer,
};
use crate::{
    buffer::{Bufs, RegionBuf},
    error::TransferError,
    settlement::Settlement,
};

impl Client {
    /// Sends all bytes of `message`, up to 4 KiB, to a receive queue: one message, with a number
    /// beside it. It is there when this is OK.
    ///
    /// Where no receive is posted it is offered again, for as long as
    /// [`RetryPolicy::not_ready`](rma_core::executor::RetryPolicy::not_ready) says. See [`Op`] for
    /// what an error means.
    ///
    /// ```no_run
    /// # use rma_xdp::{Client, Grant, RegionBuf, TransferError};
    /// async fn greet(
    ///     client: &Client,
    ///     mailbox: &Grant,
    ///     mut buf: RegionBuf,
    /// ) -> Result<(), TransferError> {
    ///     buf.set_len(5);
    ///     buf.write(0, b"hello").expect("it has room");
    ///     let (sent, _buf) = client.send(mailbox, buf, 0).await;
    ///     sent
    /// }
    /// ```
    pub fn send(
        &self,
        grant: &Grant,
        message: RegionBuf,
        immediate: u64,
    ) -> Op<(Result<(), TransferError>, RegionBuf)> {
        Op::of_buffer(self.op(grant, BufOp::Send { immediate }, Bufs::One(message)))
    }

    /// Makes an event in a receive queue, with a number and no message. As [`Client::send`].
    pub fn notify(&self, grant: &Grant, immediate: u64) -> Op<Result<(), TransferError>> {
        Op::plain(self.op(grant, BufOp::Notify { immediate }, Bufs::None))
    }

    /// Writes all bytes of `buf`, up to 4 KiB, and then makes an event in the queue that the region
    /// names. More bytes than one op can carry: [`Transfer::with_imm`].
    ///
    /// See [`Op`] for what an error means. What was not applied is the event; bytes may have
    /// landed.
    pub fn write_with_imm(
        &self,
        grant: &Grant,
        remote_offset: u64,
        buf: RegionBuf,
        immediate: u64,
    ) -> Op<(Result<(), TransferError>, RegionBuf)> {
        let op = BufOp::WriteWithImm { remote_offset, immediate };
        Op::of_buffer(self.op(grant, op, Bufs::One(buf)))
    }

    /// Writes all bytes of `buf`, any number of them, so that the last word lands last: for whoever
    /// polls that word. What one op can carry lands in whole or not at all. It is [`Client::write`]
    /// and [`Transfer::ordered`], which says more.
    pub fn write_ordered(&self, grant: &Grant, remote_offset: u64, buf: RegionBuf) -> Transfer {
        self.write(grant, remote_offset, buf).ordered()
    }

    /// Replaces the word at `remote_offset`, a multiple of 8, by `new` if it is `expected`. Comes
    /// to the word that was there: it was replaced if that is `expected`.
    ///
    /// ```no_run
    /// # use rma_xdp::{Client, Grant, TransferError};
    /// /// Whether the lock is taken now, by whoever has this number.
    /// async fn try_lock(client: &Client, lock: &Grant, me: u64) -> Result<bool, TransferError> {
    ///     Ok(client.compare_swap(lock, 0, 0, me).await? == 0)
    /// }
    /// ```
    pub fn compare_swap(
        &self,
        grant: &Grant,
        remote_offset: u64,
        expected: u64,
        new: u64,
    ) -> Op<Result<u64, TransferError>> {
        let op = BufOp::CompareSwap { remote_offset, expected, new };
        Op::atomic(self.op(grant, op, Bufs::None))
    }

    /// Adds `addend`, modulo 2^64, to the word at `remote_offset`, a multiple of 8. Comes to the
    /// word that was there before.
    ///
    /// ```no_run
    /// # use rma_xdp::{Client, Grant, TransferError, ops::Verdict};
    /// /// A number that nobody else gets. `None`: it may be lost, and nobody can tell.
    /// async fn ticket(client: &Client, counter: &Grant) -> Result<Option<u64>, TransferError> {
    ///     loop {
    ///         let outcome = match client.fetch_add(counter, 0, 1).await {
    ///             Err(TransferError::Unknown(outcome)) => outcome,
    ///             known => return known.map(Some),
    ///         };
    ///         // It was applied or not, and to add again could draw a second number.
    ///         let Some(name) = outcome.in_doubt else { return Ok(None) };
    ///         let told = client.settle(counter, name).await?;
    ///         match told.verdict {
    ///             Verdict::Applied => return Ok(told.result),
    ///             Verdict::NotApplied => {}
    ///             Verdict::Forgotten => return Ok(None),
    ///         }
    ///     }
    /// }
    /// ```
    pub fn fetch_add(
        &self,
        grant: &Grant,
        remote_offset: u64,
        addend: u64,
    ) -> Op<Result<u64, TransferError>> {
        Op::atomic(self.op(grant, BufOp::FetchAdd { remote_offset, addend }, Bufs::None))
    }

    /// Asks what became of an op that [`TransferError::Unknown`] left in doubt, by the name that
    /// its [`Outcome::in_doubt`](rma_core::executor::Outcome::in_doubt) has. `grant` is one for the
    /// region and type of that op (of [`Transfer::ordered`] for WRITE, of [`Transfer::with_imm`]
    /// for WRITE_WITH_IMM), under the region's present key.
    ///
    /// An op has been asked about before it is said to be unknown. So this is for later: when its
    /// target is back, or with the grant of a new key. A target tells for four of its timeouts
    /// after the op.
    ///
    /// [`TransferError::Unknown`] says that nobody has answered: the op is as much in doubt as
    /// before, and may be asked about again.
    pub fn settle(&self, grant: &Grant, name: OpName) -> Op<Result<Settlement, TransferError>> {
        let order = Order::new(What::Settle { grant: *grant, name });
        Op::question(Pending::new(self.handle.clone(), order, Bufs::None))
    }

    fn op(&self, grant: &Grant, op: BufOp, bufs: Bufs) -> Pending {
        let order = Order::new(What::Op { grant: *grant, op });
        Pending::new(self.handle.clone(), order, bufs)
    }
}
