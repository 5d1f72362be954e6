//! Queue pairs as futures, on any async executor or none: [`AsyncVerbs`] and [`AsyncQp`].
//!
//! A future takes a buffer and gives it back with its result, as those of a
//! [`Client`](crate::Client): so nobody else has the bytes while a work request does. The buffers
//! are those of a [`BufferPool`](crate::BufferPool), whose region is registered as a memory region
//! as well; so they serve 1RMA and StaR alike.
//!
//! Whoever polls one future polls for all. Between futures somebody must poll: a thread of its own
//! ([`AsyncVerbs::start`]), one of the application's ([`AsyncVerbs::poller`]), or the thread that
//! blocks on a future ([`AsyncVerbs::block_on`]).

mod error;
mod set_up;
mod state;
mod watches;

use core::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
};
use std::sync::Arc;

use rma_core::time::Instant;
use rma_shm::Forked;
use rma_star::{
    library::{CqId, Qp, Remote, Wc},
    verbs::WqeOp,
};

pub use self::error::WorkError;
use self::state::{Order, State, TaskId};
use super::{memory::MemoryRegion, verbs::StarVerbs};
use crate::{
    buffer::RegionBuf,
    error::{StartError, WaitError},
    polling::{
        handle::{Handle, Poller},
        seat::block_on,
        shared::Polled as _,
    },
};

/// A [`StarVerbs`] whose completions into one completion queue are futures. Clones share it, and
/// may be used in any thread.
///
/// When the last of them, of their queue pairs and of their futures is gone, queue pairs that have
/// work requests are closed, and buffers are their pools' again when all is flushed.
///
/// ```
/// # use std::{error::Error, os::unix::net::UnixStream};
/// # use rma_xdp::HostConfig;
/// use rma_xdp::{BufferPool, Host, HostError};
/// use rma_xdp::star::{
///     Access, AsyncQp, AsyncVerbs, MemoryRegion, Qp, QpConfig, StarConfigBuilder,
///     StarPortalConfig, WorkError,
/// };
///
/// async fn ask(qp: &AsyncQp, pool: &BufferPool) -> Result<Vec<u8>, WorkError> {
///     let mut question = pool.acquire().await;
///     question.set_len(5);
///     question.write(0, b"what?").expect("it has 5 bytes");
///     let (sent, _buf) = qp.send(question).await;
///     sent?;
///     let (received, answer) = qp.recv(pool.acquire().await).await;
///     received?;
///     Ok(answer.to_vec()) // it has as many bytes as the message
/// }
///
/// async fn answer(qp: &AsyncQp, pool: &BufferPool) -> Result<(), WorkError> {
///     let (received, message) = qp.recv(pool.acquire().await).await;
///     received?;
///     let (sent, _buf) = qp.send(message).await;
///     sent.map(drop)
/// }
///
/// /// One side: its queue pair, not yet connected, and buffers that both kinds of memory have.
/// fn open(host: &Host) -> Result<(AsyncVerbs, Qp, MemoryRegion, BufferPool), HostError> {
///     let mut verbs = host.verbs(StarPortalConfig::default())?;
///     let pd = host.alloc_pd(&verbs)?;
///     let pool = host.buffer_pool(8, 64)?;
///     let memory = pool.region().memory().clone();
///     let span = 0..memory.len() as u64;
///     let mr = host.reg_mr_of(&pd, memory, span, Access::LOCAL_WRITE)?;
///     let cq = verbs.create_cq(16);
///     let qp = verbs.create_qp(&pd, cq, cq, QpConfig::default()).expect("there is room for it");
///     // Without a thread of its own: this one blocks. Under tokio, `AsyncVerbs::start`.
///     Ok((AsyncVerbs::new(verbs, cq), qp, mr, pool))
/// }
/// # fn main() -> Result<(), Box<dyn Error>> {
/// # let hosts = [[127, 0, 0, 103], [127, 0, 0, 104]].map(|address| {
/// #     let star = Some(StarConfigBuilder::default());
/// #     Host::open(HostConfig::udp(address).with(|it| it.star = star)).unwrap()
/// # });
/// # let [(here, qp, mr, pool), (there, its_qp, its_mr, its_pool)] = [0, 1].map(|at| open(&hosts[at]).unwrap());
/// # let (mut secret, mut other_end) = UnixStream::pair()?;
///
/// // On one side, in a thread of its own.
/// let answers = std::thread::spawn(move || {
///     there.accept_over(its_qp, &mut other_end).unwrap();
///     there.block_on(answer(&there.qp(its_qp, &its_mr), &its_pool))
/// });
/// // On the other.
/// here.connect_over(qp, &mut secret)?;
/// assert_eq!(here.block_on(ask(&here.qp(qp, &mr), &pool))??, b"what?");
/// # answers.join().unwrap()??;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AsyncVerbs {
    handle: Arc<Handle<State>>,
}

impl AsyncVerbs {
    /// Futures that make progress when they are polled, in [`AsyncVerbs::block_on`], and while a
    /// [`Poller`] runs. Starts no thread. `cq` is for them alone: completions of work requests that
    /// the application posted itself are lost in it.
    #[must_use]
    pub fn new(verbs: StarVerbs, cq: CqId) -> Self {
        let sleep = verbs.sleep().cloned();
        Self { handle: Arc::new(Handle::new(State::new(verbs, cq), sleep)) }
    }

    /// The same with a thread that polls, and sleeps when there is nothing to do. It ends after the
    /// last queue pair and future.
    ///
    /// # Errors
    /// If the engine is inline, or there can be no thread.
    pub fn start(verbs: StarVerbs, cq: CqId) -> Result<Self, StartError> {
        let verbs = Self::new(verbs, cq);
        verbs.handle.start()?;
        Ok(verbs)
    }

    /// Returns the poller that a thread of the application's runs instead of
    /// [`AsyncVerbs::start`]'s.
    pub fn poller(&self) -> Poller {
        self.handle.poller()
    }

    /// Futures of a queue pair whose completions go to the queue of these, with buffers that lie in
    /// `mr`.
    #[must_use]
    pub fn qp(&self, qp: Qp, mr: &MemoryRegion) -> AsyncQp {
        AsyncQp { handle: self.handle.clone(), qp, mr: mr.clone() }
    }

    /// Does something with the [`StarVerbs`]: makes queue pairs, closes them. All futures stand
    /// still meanwhile, so connections are set up by [`AsyncVerbs::connect`] and
    /// [`AsyncVerbs::accept`].
    ///
    /// # Errors
    /// If the engine is the parent's of this process ([`WaitError::Forked`]).
    pub fn with<T>(&self, act: impl FnOnce(&mut StarVerbs) -> T) -> Result<T, WaitError> {
        Ok(self.handle.shared().with(|state, after| act(state.lend(after).verbs()))?)
    }

    /// Runs a future to its end on this thread, which polls meanwhile if no other thread does. It
    /// spins, then sleeps, as [`StarVerbs::set_idle`] said. Several threads may do this at once.
    ///
    /// # Errors
    /// If the engine is inline: poll its futures, [`AsyncVerbs::poll`] and the engine by turns.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, WaitError> {
        block_on(self.handle.shared(), pin!(future))
    }

    /// Takes what the engine has reported, and wakes the futures that can go on. Returns how much
    /// there was to do: in a child that was forked nothing. For applications that poll in a loop of
    /// their own.
    pub fn poll(&self) -> usize {
        self.handle.shared().with(State::turn).unwrap_or(0)
    }
}

/// A queue pair whose work requests are futures. Clones are of the same queue pair.
///
/// A work request is posted when its future is first polled; those of one queue pair complete in
/// that order. What does not fit into the queue pair's queues, the completion queue or the portal
/// is refused, with [`WorkError::Refused`], or waits for a place ([`Work::when_free`]).
#[derive(Clone, Debug)]
pub struct AsyncQp {
    handle: Arc<Handle<State>>,
    qp: Qp,
    mr: MemoryRegion,
}

impl AsyncQp {
    /// Sends the bytes of a buffer, which a RECV of the peer takes.
    pub fn send(&self, buf: RegionBuf) -> Work {
        self.work(WqeOp::Send, Remote::default(), buf)
    }

    /// Takes the next message that the peer sends. The buffer has as many bytes as that has then.
    pub fn recv(&self, buf: RegionBuf) -> Work {
        self.work(WqeOp::Recv, Remote::default(), buf)
    }

    /// Writes the bytes of a buffer to memory of the peer.
    pub fn write(&self, buf: RegionBuf, to: Remote) -> Work {
        self.work(WqeOp::Write, to, buf)
    }

    /// Fills a buffer from memory of the peer.
    pub fn read(&self, buf: RegionBuf, from: Remote) -> Work {
        self.work(WqeOp::Read, from, buf)
    }

    /// Until the connection is over: it has failed, this side or the peer has closed it, or the
    /// engine is gone. Whoever posts to a peer that has died hears of it here as soon as the engine
    /// does, without a work request of its own; that takes `StarConfigBuilder::ends_within` of the
    /// stateful side, and [`VerbsConfig::ends_within`] of the stateless side, at most, if something
    /// is posted.
    ///
    /// [`VerbsConfig::ends_within`]: rma_star::library::VerbsConfig::ends_within
    pub async fn over(&self) {
        let Ok(watch) = Watch::new(&self.handle, self.qp, None) else { return };
        poll_fn(|context| {
            let _ = watch.renew(context);
            let is_over = self.handle.shared().with(|state, _| state.is_over(self.qp));
            if is_over.unwrap_or(true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn work(&self, op: WqeOp, remote: Remote, buf: RegionBuf) -> Work {
        let (handle, mr) = (self.handle.clone(), self.mr.clone());
        let (immediate, is_inline, waits) = (None, false, false);
        let order = Order { qp: self.qp, op, remote, immediate, is_inline, waits, mr };
        Work { handle, phase: Phase::New(Box::new(order), buf) }
    }
}

/// A work request of an [`AsyncQp`]. Gives its buffer back with the result.
///
/// Dropped after it was first polled, it goes on, and its buffer is its pool's again when it is
/// over. So a RECV whose future is dropped still takes a message, which is lost with it.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Work {
    handle: Arc<Handle<State>>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    New(Box<Order>, RegionBuf),
    Posted(TaskId),
    Done,
}

impl Work {
    /// With an immediate for the peer's completion: [`SendWr::with_imm`].
    ///
    /// [`SendWr::with_imm`]: rma_star::library::SendWr::with_imm
    pub fn with_imm(self, immediate: u32) -> Self {
        self.with(|order| order.immediate = Some(immediate))
    }

    /// The bytes travel with the work request: [`SendWr::inline`].
    ///
    /// [`SendWr::inline`]: rma_star::library::SendWr::inline
    pub fn inline(self) -> Self {
        self.with(|order| order.is_inline = true)
    }

    /// Waits for a place where a queue is full, in place of [`WorkError::Refused`]. Those that wait
    /// are posted in any order: who needs one awaits each before the next.
    pub fn when_free(self) -> Self {
        self.with(|order| order.waits = true)
    }

    fn with(mut self, set: impl FnOnce(&mut Order)) -> Self {
        if let Phase::New(order, _) = &mut self.phase {
            set(order);
        }
        self
    }
}

impl Future for Work {
    type Output = (Result<Wc, WorkError>, RegionBuf);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let task = match core::mem::replace(&mut this.phase, Phase::Done) {
            Phase::New(order, buf) => {
                if let Err(forked) = this.handle.shared().check_process() {
                    return Poll::Ready((Err(WaitError::from(forked).into()), buf));
                }
                let posted = this.handle.shared().with(|state, _| {
                    state.post(&order, buf).map_err(|(error, buf)| {
                        (error, buf, order.waits && state.wait_for_place(error, context))
                    })
                });
                match posted {
                    Ok(Ok(task)) => task,
                    Ok(Err((_, buf, true))) => {
                        this.phase = Phase::New(order, buf);
                        return Poll::Pending;
                    }
                    Ok(Err((error, buf, false))) => return Poll::Ready((Err(error), buf)),
                    Err(_) => return Poll::Pending,
                }
            }
            Phase::Posted(task) => task,
            Phase::Done => panic!("a future is polled after it was over"),
        };
        let polled =
            this.handle.shared().with(|state, after| state.poll_task(task, context, after));
        // Begun by the parent, which has the buffer: it is over there alone.
        let polled = polled.unwrap_or(Poll::Pending);
        if polled.is_pending() {
            this.phase = Phase::Posted(task);
        }
        polled
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Phase::Posted(task) = self.phase {
            self.handle.shared().with_own(|state, after| state.abandon(task, after));
        }
    }
}

/// Wakes a future when its queue pair has news, or its time is over. Until it is dropped.
struct Watch<'a> {
    handle: &'a Arc<Handle<State>>,
    number: u64,
}

impl<'a> Watch<'a> {
    fn new(handle: &'a Arc<Handle<State>>, qp: Qp, until: Option<Instant>) -> Result<Self, Forked> {
        let number = handle.shared().with(|state, _| state.watch(qp, until))?;
        Ok(Self { handle, number })
    }

    /// `false` if the time is over.
    fn renew(&self, context: &Context<'_>) -> Result<bool, Forked> {
        self.handle.shared().with(|state, after| state.renew_watch(self.number, context, after))
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.handle.shared().with_own(|state, after| state.end_watch(self.number, after));
    }
}
