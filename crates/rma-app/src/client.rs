//! Futures for transfers: [`Client`], on any async executor or none.
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

mod line;
mod order;
mod remaining;
mod seat;
mod tasks;

use core::{
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};
use std::{future::poll_fn, sync::Arc, thread};

use rma_core::{
    executor::{Outcome, RetryPolicy},
    grant::Grant,
    op::{ClassOfService, OpType},
};

use crate::{
    buffer::{BufPiece, Bufs, RegionBuf},
    error::{StartError, TransferError, WaitError},
    executor::{Executor, done},
    options::TransferOptions,
};
use order::{Order, What};
use remaining::missing_in_whole;
use seat::block_on;
use tasks::{After, Shared, State, TaskId};

/// Reads and writes as futures, over one [`Executor`]. Clones share it; they may be used in any
/// thread.
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
            |state: &mut State, _: &mut After| state.calls() > 0 && state.gone.is_none();
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
    /// A client whose futures make progress when they are polled, in [`Client::block_on`], and
    /// while a [`Poller`] runs. Starts no thread.
    ///
    /// # Panics
    /// If a call of the executor is not over, or its outcome has not been taken: nobody would take
    /// it.
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
    ///
    /// # Panics
    /// As [`Client::new`].
    pub fn start(executor: Executor) -> Result<Self, StartError> {
        if executor.sleep().is_none() {
            return Err(WaitError::InlineEngine.into());
        }
        let client = Self::new(executor);
        let poller = client.poller();
        thread::Builder::new().name("rma-client".into()).spawn(move || poller.run())?;
        Ok(client)
    }

    /// What a thread of the application's runs instead of [`Client::start`]'s.
    pub fn poller(&self) -> Poller {
        Poller { owner: self.handle.owner.clone() }
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
        let what = What::Whole { grant: *grant, remote_offset };
        self.transfer(op_type, what, Bufs::One(buf), Bufs::one)
    }

    /// Reads several runs of bytes, all from one host, into `bufs`: one call, with the pieces of a
    /// [`Call`](rma_core::executor::Call). Which byte comes first nobody knows; the buffers come
    /// back together, in their order.
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
            options: TransferOptions::new(),
            only: None,
            fenced: false,
            or_full: false,
        };
        Transfer { client: self.clone(), phase: Phase::New { order, bufs }, give_back }
    }

    /// From now on, what is submitted waits until everything that was submitted before is over,
    /// well or not; also by clones of this client. A transfer is submitted when it is first polled:
    /// for one alone there is [`Transfer::fenced`].
    pub fn fence(&self) {
        self.handle.owner.shared.with(|state, _| state.fence());
    }

    /// Runs a future to its end on this thread, which polls the executor meanwhile if no other
    /// thread does. It spins, then sleeps, as [`Executor::set_idle`] said. Several threads may do
    /// this at once.
    ///
    /// # Errors
    /// If the engine is inline: `InlineHost::block_on` of the crate `rma-xdp` is for those.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, WaitError> {
        block_on(&self.handle.owner.shared, pin!(future))
    }

    /// Makes what progress can be made, and wakes the futures that can go on. Returns how much
    /// there was to do. For applications that poll in a loop of their own.
    pub fn poll(&self) -> usize {
        self.handle.owner.shared.with(State::turn)
    }

    /// How many calls are not over, those of dropped futures among them.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.handle.owner.shared.with(|state, _| state.calls())
    }

    /// How many transfers wait for a place among the calls.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.handle.owner.shared.with(|state, _| state.waiting())
    }

    /// From now on, at most so many transfers wait for a place among the calls; the next ones end
    /// with [`TransferError::Full`]. Those that wait go on waiting. Default: any number, as each of
    /// them is a future of the application's and has buffers of its own, so that a
    /// [`BufferPool`](crate::BufferPool) bounds them already.
    ///
    /// ```no_run
    /// # use rma_xdp::{Client, Executor, Grant, RegionBuf, TransferError};
    /// # async fn serve(executor: Executor, grant: Grant, buf: RegionBuf) -> Result<(), TransferError> {
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
        self.handle.owner.shared.with(|state, _| state.waiting_max = transfers);
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
    /// Polls until the last client and future are gone and their calls over, or the engine is.
    /// Sleeps when there is nothing to do.
    ///
    /// # Errors
    /// If the engine is inline.
    pub fn run(self) -> Result<(), WaitError> {
        poll_until_done(&self.owner.shared)
    }
}

/// A read or write under way: [`Client::read`], [`Client::write`], [`Client::read_pieces`],
/// [`Client::write_pieces`]. Submitted when it is first polled.
///
/// Gives its buffers back with the result. Dropped before, it gives up the call: no more ops of it
/// are issued, and the buffers are their pools' again when those under way are over.
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
        /// The outcome of the only call, as in [`Order::only`].
        only: Option<Arc<Outcome>>,
    },
    Done,
}

impl<B> Transfer<B> {
    /// Class of service, retry policy and timeout at once, in place of those that it had.
    pub fn options(self, options: TransferOptions) -> Self {
        self.with(|order| order.options = options)
    }

    /// With which class of service. Default: latency if one op can do it, or else throughput.
    pub fn class(self, class: ClassOfService) -> Self {
        self.with(|order| order.options = order.options.class(class))
    }

    /// What to do when ops fail. Default: [`RetryPolicy::DEFAULT`].
    pub fn retry(self, retry: RetryPolicy) -> Self {
        self.with(|order| order.options = order.options.retry(retry))
    }

    /// After how long to give up, from when it is first polled, the time that it waits for a place
    /// included. Default: when the retries are used up, or no op was OK for
    /// [`ExecutorConfig::stall`](rma_core::executor::ExecutorConfig::stall); the time in the line
    /// is not bounded then.
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
        self.with(|order| order.only = Some(Arc::new(outcome.clone())))
    }

    /// Begins when everything is over, well or not, that was submitted before it is first polled:
    /// [`Client::fence`] and this transfer in one. What is submitted after it waits for the same,
    /// and not for this transfer. If this transfer is refused, there is no fence either.
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
    /// it ends with [`TransferError::Full`]. See [`Client`] for who waits how.
    pub fn or_full(self) -> Self {
        self.with(|order| order.or_full = true)
    }

    fn with(mut self, set: impl FnOnce(&mut Order)) -> Self {
        if let Phase::New { order, .. } = &mut self.phase {
            set(order);
        }
        self
    }
}

impl<B> Future for Transfer<B> {
    type Output = (Result<(), TransferError>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { client, phase, give_back } = &mut *self;
        let shared = &client.handle.owner.shared;
        let polled = shared.with(|state, after| {
            let (task, only) = match core::mem::replace(phase, Phase::Done) {
                Phase::New { order, bufs } => {
                    let only = order.only.clone();
                    match state.begin(order, bufs) {
                        Ok(task) => (task, only),
                        Err(refused) => {
                            let (error, bufs) = *refused;
                            return Poll::Ready((Err(error), bufs));
                        }
                    }
                }
                Phase::Submitted { task, only } => (task, only),
                Phase::Done => panic!("a future is not polled after its end"),
            };
            *phase = Phase::Submitted { task, only };
            state.poll_task(task, context, after)
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
