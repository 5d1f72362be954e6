//! A thousand tasks on one thread, and what they note.
//!
//! Most look up keys that both servers have: at the one that the key says, without retries, and if
//! that fails at the other; some write them, as they would be read. Some read and write what only
//! the first server has, with the default policy.

use core::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use std::{
    collections::VecDeque,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    task::Wake,
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use rma_bench::{error::PairError, grants::Grants, interrupt::Interrupt};
use rma_xdp::{
    BufferPool, Client, Grant, InlineHost, OpType, RegionBuf,
    config::Timing,
    ops::Moves,
    time::{Clock, TscClock},
    transfer::RetryPolicy,
};

use super::{
    network::{REGION_LEN, Server},
    timeline::{Failover, TICK, Tick, Times},
};
use crate::error::FigureError;

/// How many there are, and how many of each kind that does not look up.
pub const TASKS: u32 = 1000;
const OTHERS: u32 = 30;

/// Bytes of a value.
const VALUE_LEN: u32 = 64;

/// How many command slots the client has: far fewer than tasks, as a service has.
const SLOTS: u16 = 64;

/// The work of one task.
#[derive(Clone, Copy)]
enum Kind {
    /// An op on both servers, without retries.
    Both(OpType),
    /// An op on the first server only, with the default policy.
    First(OpType),
}

/// The state that tasks share.
struct Shared {
    client: Client,
    pool: BufferPool,
    clock: TscClock,
    began: Cell<u64>,
    /// When the first server was killed.
    killed: Cell<Option<Duration>>,
    grants: RefCell<[Option<Grants>; 2]>,
    ticks: RefCell<Vec<Tick>>,
}

impl Shared {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now().as_nanos() - self.began.get())
    }

    fn grant(&self, server: usize, op_type: OpType) -> Grant {
        let grants = self.grants.borrow()[server].expect("tasks begin when there are grants");
        grants.get(op_type).expect("both types are granted")
    }

    fn note(&self, note: impl FnOnce(&mut Tick)) {
        let tick = (self.now().as_nanos() / TICK.as_nanos()) as usize;
        let mut ticks = self.ticks.borrow_mut();
        if ticks.len() <= tick {
            ticks.resize(tick + 1, Tick::default());
        }
        note(&mut ticks[tick]);
    }

    /// One call, and whether it was OK.
    async fn call(
        &self,
        (server, op_type): (usize, OpType),
        offset: u64,
        retry: RetryPolicy,
        buf: RegionBuf,
    ) -> (bool, RegionBuf) {
        let grant = self.grant(server, op_type);
        let began = self.now();
        let transfer = match op_type.shape().moves {
            Moves::Out => self.client.write(&grant, offset, buf),
            Moves::In => self.client.read(&grant, offset, buf),
        };
        let (result, buf) = transfer.retry(retry).await;
        let (now, killed) = (self.now(), self.killed.get());
        let wait = killed.filter(|_| server == 0).map_or(Duration::ZERO, |at| now - at.max(began));
        self.note(|tick| {
            tick.calls[server] = tick.calls[server].max(now - began);
            tick.wait = tick.wait.max(wait);
            match &result {
                Ok(()) => tick.ok[server] += 1,
                Err(_) => tick.failed[server] += 1,
            }
        });
        (result.is_ok(), buf)
    }

    async fn task(self: Rc<Self>, kind: Kind, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut buf = self.pool.acquire().await;
        loop {
            let key = random.random_range(0..REGION_LEN / u64::from(VALUE_LEN));
            let offset = key * u64::from(VALUE_LEN);
            let mut ok;
            match kind {
                Kind::Both(op_type) => {
                    let (began, first) = (self.now(), (key % 2) as usize);
                    let none = RetryPolicy::NONE;
                    (ok, buf) = self.call((first, op_type), offset, none, buf).await;
                    if !ok {
                        (ok, buf) = self.call((1 - first, op_type), offset, none, buf).await;
                    }
                    let took = self.now() - began;
                    self.note(|tick| {
                        tick.lookup = tick.lookup.max(took);
                        tick.lookups += u64::from(ok && op_type.shape().moves == Moves::In);
                    });
                }
                Kind::First(op_type) => {
                    let retry = RetryPolicy::DEFAULT;
                    (ok, buf) = self.call((0, op_type), offset, retry, buf).await;
                }
            }
            if !ok {
                // An op that fails at once may do so for ever, so others get their turn.
                step_aside().await;
            }
        }
    }
}

/// Lets all other tasks have a turn.
async fn step_aside() {
    let mut was_aside = false;
    poll_fn(|context| {
        if core::mem::replace(&mut was_aside, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Numbers of tasks to poll.
type Queue = Arc<Mutex<VecDeque<usize>>>;

struct WakeTask {
    task: usize,
    queue: Queue,
}

impl Wake for WakeTask {
    fn wake(self: Arc<Self>) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.task);
    }
}

/// The client and its tasks.
pub(super) struct Tasks {
    host: InlineHost,
    shared: Rc<Shared>,
    timing: Timing,
    tasks: Vec<Pin<Box<dyn Future<Output = ()>>>>,
    wakers: Vec<Waker>,
    woken: Queue,
}

impl Tasks {
    pub(super) fn new(host: InlineHost) -> Result<Self, PairError> {
        let pool = host.buffer_pool(TASKS, VALUE_LEN)?;
        let client = Client::new(host.transfers(SLOTS)?);
        let shared = Rc::new(Shared {
            client,
            pool,
            clock: TscClock::new(),
            began: Cell::new(0),
            killed: Cell::new(None),
            grants: RefCell::default(),
            ticks: RefCell::default(),
        });
        let woken = Queue::default();
        let first =
            [Kind::First(OpType::Read), Kind::First(OpType::Write), Kind::Both(OpType::Write)];
        let first = first.into_iter().flat_map(|kind| [kind; OTHERS as usize]);
        let kinds = first.chain(core::iter::repeat(Kind::Both(OpType::Read))).take(TASKS as usize);
        let tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = kinds
            .enumerate()
            .map(|(task, kind)| Box::pin(shared.clone().task(kind, task as u64)) as _)
            .collect();
        let waker = |task| Waker::from(Arc::new(WakeTask { task, queue: woken.clone() }));
        let wakers = (0..tasks.len()).map(waker).collect();
        Ok(Self { host, shared, timing: Timing::default(), tasks, wakers, woken })
    }
}

/// A run of them.
pub(super) struct Run<'a> {
    tasks: &'a mut Tasks,
    interrupt: &'a Interrupt,
}

impl<'a> Run<'a> {
    pub(super) fn new(tasks: &'a mut Tasks, interrupt: &'a Interrupt) -> Self {
        Self { tasks, interrupt }
    }

    /// Since it began.
    pub(super) fn now(&self) -> Duration {
        self.tasks.shared.now()
    }

    /// Runs until a server has handed over its grants, which tasks use from then on.
    pub(super) fn until_granted(
        &mut self,
        number: usize,
        server: &Server,
        within: Duration,
    ) -> Result<(), PairError> {
        let end = self.now() + within;
        loop {
            if let Some(grants) = server.grants() {
                self.tasks.shared.grants.borrow_mut()[number] = Some(grants);
                return Ok(());
            }
            if self.now() > end {
                return Err(FigureError::NotServed { within }.into());
            }
            self.run_for(Duration::from_millis(5))?;
        }
    }

    /// There are grants: tasks begin, and so does time.
    pub(super) fn begin(&mut self) {
        let Tasks { shared, tasks, woken, .. } = &mut *self.tasks;
        shared.began.set(shared.clock.now().as_nanos());
        woken.lock().unwrap_or_else(PoisonError::into_inner).extend(0..tasks.len());
    }

    /// The first server is killed: what is waited for it counts from now on, and when that is.
    pub(super) fn note_killed(&mut self) -> Duration {
        let now = self.now();
        self.tasks.shared.killed.set(Some(now));
        now
    }

    pub(super) fn run_for(&mut self, time: Duration) -> Result<(), PairError> {
        let end = self.now() + time;
        while self.now() < end {
            if self.interrupt.is_set() {
                return Err(PairError::Interrupted);
            }
            self.turn();
        }
        Ok(())
    }

    fn turn(&mut self) {
        let Tasks { host, shared, tasks, wakers, woken, .. } = &mut *self.tasks;
        host.turn();
        shared.client.poll();
        // Those that are woken meanwhile are for the next turn.
        let now = core::mem::take(&mut *woken.lock().unwrap_or_else(PoisonError::into_inner));
        for task in now {
            let ended = tasks[task].as_mut().poll(&mut Context::from_waker(&wakers[task]));
            assert!(ended.is_pending(), "tasks go on for ever");
        }
    }

    pub(super) fn end(self, times: Times) -> Failover {
        let ticks = self.tasks.shared.ticks.take();
        Failover { timeout: self.tasks.timing.timeout, times, ticks }
    }
}
