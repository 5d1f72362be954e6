//! Futures for transfers: [`Client`], on any async executor or none.
//!
//! # Buffers
//!
//! A call takes its [`RegionBuf`], or several, and gives them back with its result. A future that is dropped before gives
//! up its call; the buffers go back to their pools when the NIC is done with them, and not before: so no late frame ever lands in
//! memory that somebody else has meanwhile.
//!
//! # Who makes progress
//!
//! Every future that is polled polls the executor. Between that somebody must: a thread of the client's own
//! ([`Client::start`]), a thread of the application's ([`Client::poller`]), or the thread that blocks on the future
//! ([`Client::block_on`]), which saves the way from one thread to the other.

use core::{
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};
use std::{future::poll_fn, sync::Arc, thread};

use rma_core::{
    executor::{Call, CallId, Outcome, RetryPolicy},
    grant::Grant,
    op::{ClassOfService, OpType},
};

use super::{
    Executor,
    buffer::{BufPiece, Bufs, RegionBuf},
    check_op_type, done,
    remaining::{check_within, error_in_whole, missing_in_whole},
    seat::block_on,
    tasks::{After, Shared, State, TaskId},
};
use crate::error::{HostError, TransferError, WaitError};

/// Reads and writes as futures, over one [`Executor`]. Clones share it; they may be used in any thread.
///
/// When the last clone and the last future are gone, calls that were given up are waited for by whoever polls, or else
/// by a thread that lives as long as they do, which promise P1 bounds. Then the portal's slots are the host's again.
///
/// ```
#[doc = include_str!("../../examples/async_read.rs")]
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    handle: Arc<Handle>,
}

/// What clients and futures have, and pollers have not.
#[derive(Debug)]
struct Handle {
    owner: Arc<Owner>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.owner.shared.with(State::close);
    }
}

/// What keeps buffers of calls until these are over.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let unfinished =
            |state: &mut State, _: &mut After| state.pending > 0 && state.gone.is_none();
        if self.shared.sleep.is_some() && self.shared.with(unfinished) {
            // If there can be no thread, the buffers stay out of their pools: see `State`.
            let _ = spawn(self.shared.clone());
        }
    }
}

/// Starts a thread that polls until there is nothing to poll for.
fn spawn(shared: Arc<Shared>) -> std::io::Result<thread::JoinHandle<()>> {
    let body = move || {
        // Only of an inline engine, which has no thread.
        let _ = poll_until_done(&shared);
    };
    thread::Builder::new().name("rma-client".into()).spawn(body)
}

fn poll_until_done(shared: &Shared) -> Result<(), WaitError> {
    let over = poll_fn(|context| shared.with(|state, _| state.poll_done(context)));
    block_on(shared, pin!(over))
}

impl Client {
    /// A client whose futures make progress when they are polled, in [`Client::block_on`], and while a
    /// [`Poller`] runs. Starts no thread.
    #[must_use]
    pub fn new(executor: Executor) -> Self {
        let owner = Arc::new(Owner { shared: Arc::new(Shared::new(executor)) });
        Self { handle: Arc::new(Handle { owner }) }
    }

    /// A client with a thread that polls for it, and sleeps when there is nothing to do, as
    /// [`Executor::set_idle`] said. It ends after the last client and its last call.
    ///
    /// # Errors
    /// If the engine is inline, or there can be no thread.
    pub fn start(executor: Executor) -> Result<Self, HostError> {
        if executor.portal().sleep().is_none() {
            return Err(WaitError::InlineEngine.into());
        }
        let client = Self::new(executor);
        let poller = client.poller();
        thread::Builder::new()
            .name("rma-client".into())
            .spawn(move || poller.run())
            .map_err(|source| HostError::System { what: "starting a client's thread", source })?;
        Ok(client)
    }

    /// What a thread of the application's runs instead of [`Client::start`]'s.
    pub fn poller(&self) -> Poller {
        Poller { owner: self.handle.owner.clone() }
    }

    /// Reads as many bytes as `buf` has, from `remote_offset` of the granted region.
    pub fn read(&self, grant: &Grant, remote_offset: u64, buf: RegionBuf) -> Transfer {
        let what = What::Whole { grant: *grant, remote_offset };
        self.transfer(OpType::Read, what, Bufs::One(buf), Bufs::one)
    }

    /// Writes all bytes of `buf`, to `remote_offset` of the granted region.
    pub fn write(&self, grant: &Grant, remote_offset: u64, buf: RegionBuf) -> Transfer {
        let what = What::Whole { grant: *grant, remote_offset };
        self.transfer(OpType::Write, what, Bufs::One(buf), Bufs::one)
    }

    /// Reads several runs of bytes, all from one host, into `bufs`: one call, with the pieces of a
    /// [`Call`]. Which byte comes first nobody knows; the buffers come back together, in their order.
    ///
    /// ```no_run
    /// # use rma_xdp::{BufPiece, BufferPool, Client, Grant, RegionBuf, TransferError};
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
        self.transfer(op_type, What::Pieces(pieces), Bufs::Many(bufs), Bufs::many)
    }

    fn transfer<B>(
        &self,
        op_type: OpType,
        what: What,
        bufs: Bufs,
        give_back: fn(Bufs) -> B,
    ) -> Transfer<B> {
        let order = Order {
            op_type,
            what,
            class: None,
            retry: RetryPolicy::DEFAULT,
            timeout: None,
            only: None,
            fenced: false,
        };
        Transfer { client: self.clone(), phase: Phase::New { order, bufs }, give_back }
    }

    /// From now on, what is submitted waits until everything that was submitted before is over, well or not; also by
    /// clones of this client. A transfer is submitted when it is first polled: for one alone there is
    /// [`Transfer::fenced`].
    pub fn fence(&self) {
        self.handle.owner.shared.with(|state, _| state.executor.fence());
    }

    /// Runs a future to its end on this thread, which polls the executor meanwhile if no other thread does. It spins,
    /// then sleeps, as [`Executor::set_idle`] said. Several threads may do this at once.
    ///
    /// # Errors
    /// If the engine is inline: [`crate::InlineHost::block_on`] is for those.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, WaitError> {
        block_on(&self.handle.owner.shared, pin!(future))
    }

    /// Makes what progress can be made, and wakes the futures that can go on. Returns how much there was to do. For
    /// applications that poll in a loop of their own.
    pub fn poll(&self) -> usize {
        self.handle.owner.shared.with(State::turn)
    }

    /// How many calls are not over, those of dropped futures among them.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.handle.owner.shared.with(|state, _| state.pending)
    }

    /// Looks at the executor.
    pub(crate) fn with_executor<T>(&self, look: impl FnOnce(&Executor) -> T) -> T {
        self.handle.owner.shared.with(|state, _| look(&state.executor))
    }
}

/// Polls a client's executor, so that its futures are woken on whatever async executor they run.
#[derive(Debug)]
#[must_use = "it polls while it runs"]
pub struct Poller {
    owner: Arc<Owner>,
}

impl Poller {
    /// Polls until the last client and future are gone and their calls over, or the engine is. Sleeps when there is
    /// nothing to do.
    ///
    /// # Errors
    /// If the engine is inline.
    pub fn run(self) -> Result<(), WaitError> {
        poll_until_done(&self.owner.shared)
    }
}

/// A read or write under way: [`Client::read`], [`Client::write`], [`Client::read_pieces`], [`Client::write_pieces`].
/// Submitted when it is first polled.
///
/// Gives its buffers back with the result. Dropped before, it gives up the call: no more ops of it are issued, and the
/// buffers are their pools' again when those under way are over.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Transfer<B = RegionBuf> {
    client: Client,
    phase: Phase,
    /// What the application gave is what it gets.
    give_back: fn(Bufs) -> B,
}

#[derive(Debug)]
enum Phase {
    New {
        order: Order,
        bufs: Bufs,
    },
    Submitted {
        task: TaskId,
        /// [`Order::only`].
        only: Option<Outcome>,
    },
    Done,
}

/// What to transfer, and how.
#[derive(Debug)]
struct Order {
    op_type: OpType,
    what: What,
    class: Option<ClassOfService>,
    retry: RetryPolicy,
    timeout: Option<Duration>,
    /// Of another transfer, which left missing what this one is to transfer.
    only: Option<Outcome>,
    fenced: bool,
}

#[derive(Debug)]
enum What {
    /// All of the only buffer.
    Whole {
        grant: Grant,
        remote_offset: u64,
    },
    Pieces(Vec<BufPiece>),
}

impl<B> Transfer<B> {
    /// With which class of service. Default: latency if one op can do it, or else throughput.
    pub fn class(self, class: ClassOfService) -> Self {
        self.with(|order| order.class = Some(class))
    }

    /// What to do when ops fail. Default: [`RetryPolicy::DEFAULT`].
    pub fn retry(self, retry: RetryPolicy) -> Self {
        self.with(|order| order.retry = retry)
    }

    /// After how long to give up, from when it is first polled. Default: when the retries are used up.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|order| order.timeout = Some(timeout))
    }

    /// Transfers only what another transfer of these bytes left missing, such as one with another replica. The pieces
    /// and buffers are those of that transfer, all of them.
    ///
    /// An outcome or an error of this transfer has the numbers of the whole, too: what it leaves missing is in its
    /// outcome, which goes to `remaining` of the next. Its `bytes_done`, `retries` and [`Missing::tried`] tell of this
    /// transfer alone.
    ///
    /// An outcome with more than [`PIECES_MAX`] of `missing` is too much for one transfer. Make several, one after the
    /// other, each with a copy of it that has only as many of these.
    ///
    /// [`PIECES_MAX`]: rma_core::executor::PIECES_MAX
    /// [`Missing::tried`]: rma_core::executor::Missing::tried
    pub fn remaining(self, outcome: &Outcome) -> Self {
        self.with(|order| order.only = Some(outcome.clone()))
    }

    /// Begins when everything is over, well or not, that was submitted before it is first polled: [`Client::fence`] and
    /// this transfer in one. What is submitted after it waits for the same, and not for this transfer. If this transfer
    /// is refused, there is no fence either.
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

    fn with(mut self, set: impl FnOnce(&mut Order)) -> Self {
        if let Phase::New { order, .. } = &mut self.phase {
            set(order);
        }
        self
    }
}

impl Order {
    fn submit(&self, state: &mut State, bufs: &Bufs) -> Result<CallId, TransferError> {
        let bufs = bufs.as_ref();
        let (one, many);
        let whole = match &self.what {
            What::Whole { grant, remote_offset } => {
                one = [bufs[0].piece(grant, *remote_offset)];
                one.as_slice()
            }
            What::Pieces(pieces) => {
                let parts = pieces.iter().enumerate();
                let parts = parts.map(|(index, it)| bufs[it.buf].part(index, it));
                many = parts.collect::<Result<Vec<_>, _>>()?;
                &many
            }
        };
        for (index, piece) in whole.iter().enumerate() {
            check_op_type(index, piece.grant, self.op_type)?;
        }
        let parts;
        let pieces = match &self.only {
            None => whole,
            Some(outcome) => {
                check_within(outcome, whole)?;
                parts = outcome.remaining(whole, |piece| piece.grant);
                &parts
            }
        };
        let deadline = self.timeout.map(|timeout| state.executor.now() + timeout);
        let Self { class, retry, fenced, .. } = *self;
        let begun = state.begin(&Call { pieces, class, retry, deadline }, fenced);
        begun.map_err(|error| match (error, &self.only) {
            (TransferError::Refused(error), Some(only)) => error_in_whole(only, error).into(),
            (error, _) => error,
        })
    }
}

impl<B> Future for Transfer<B> {
    type Output = (Result<(), TransferError>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { client, phase, give_back } = &mut *self;
        let shared = &client.handle.owner.shared;
        let polled = shared.with(|state, after| {
            let (task, only) = match core::mem::replace(phase, Phase::Done) {
                Phase::New { order, bufs } => match order.submit(state, &bufs) {
                    Ok(call) => (state.keep(call, bufs), order.only),
                    Err(error) => return Poll::Ready((Err(error), bufs)),
                },
                Phase::Submitted { task, only } => (task, only),
                Phase::Done => panic!("a future is not polled after its end"),
            };
            *phase = Phase::Submitted { task, only };
            let polled = state.poll_task(task, context, after);
            polled.map(|(result, bufs)| (result.map_err(TransferError::from), bufs))
        });
        polled.map(|(result, bufs)| {
            let result = match core::mem::replace(phase, Phase::Done) {
                Phase::Submitted { only: Some(only), .. } => result.map(|it| Outcome {
                    missing: missing_in_whole(&only.missing, it.missing),
                    ..it
                }),
                _ => result,
            };
            (result.and_then(done), give_back(bufs))
        })
    }
}

impl<B> Drop for Transfer<B> {
    fn drop(&mut self) {
        if let Phase::Submitted { task, .. } = self.phase {
            self.client.handle.owner.shared.with(|state, after| state.abandon(task, after));
        }
    }
}
