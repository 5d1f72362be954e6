//! An engine on a thread of its own: pinning, idling, and the queue of the control path.
//!
//! Once started, the thread allocates nothing, takes no lock, and blocks only where its idle policy
//! lets it sleep. It ends when its host is dropped.

use core::{
    sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst},
    time::Duration,
};
use std::{
    collections::BTreeSet,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use crossbeam_queue::ArrayQueue;
use rma_app::{
    TscClock,
    event_fd::{EventFd, timespec},
    idle::{Idle, IdlePolicy, IdleTracker},
    life::Life,
};
use rma_core::{
    engine::Engine,
    portal::{Bell, Wake},
    seat::Seat,
    time::Clock,
};
use rma_shm::{Doorbell, Worker};
use rustix::event::{PollFd, PollFlags, poll};

use crate::{
    device::backend::HostBackend,
    driver::{
        control::{AnyCall, Asked, Call, ControlPath, Question, Unanswered},
        questions::TakeKeys,
    },
    engine::{
        housekeeping::Housekeeping,
        services::{HostEngine, HostService},
    },
    error::HostError,
    services::Side,
};

/// How long the driver waits for an answer before it calls the engine stuck.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// The longest sleep. Nothing should need it: it bounds the harm of a wake-up that a future bug
/// loses.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The longest sleep of an engine that has no counter values, or packets that wait for a path:
/// nobody wakes it when there are some, or there is one.
const STARVED_SLEEP_MAX: Duration = Duration::from_millis(1);

/// The most file descriptors that one engine sleeps on: its receive queues, the wake-up, and news
/// of the interface.
const FDS_MAX: usize = 66;

/// Checks that each of so many engines can be pinned to one of `cores`, if there are any.
///
/// # Errors
/// [`HostError::Cores`] if they are too few, or named twice.
pub(crate) fn check_cores(cores: &[usize], engines: usize) -> Result<(), HostError> {
    let different = cores.iter().collect::<BTreeSet<_>>().len();
    if cores.is_empty() || different == cores.len() && different >= engines {
        return Ok(());
    }
    Err(HostError::Cores { cores: different, engines })
}

/// Says that the thread has ended, however it ended.
struct EndOfLife(Arc<AtomicBool>);

impl Drop for EndOfLife {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
        // The engine takes no turn any longer, so this may take its time.
        if std::thread::panicking() {
            tracing::error!("an engine thread has panicked: the ops of its portals wait in vain");
        }
    }
}

/// The state that the driver and the engine thread share.
#[derive(Debug)]
struct Shared {
    calls: ArrayQueue<Arc<dyn AnyCall>>,
    stop: AtomicBool,
    doorbell: Doorbell,
    wake: Arc<EventFd>,
}

/// The engine of a [`Host`](crate::Host): on a thread, which ends with the host.
#[derive(Debug)]
pub struct EngineThread {
    shared: Arc<Shared>,
    ended: Arc<AtomicBool>,
    thread: Option<Worker>,
    /// The last call that was answered. The engine may hold it still, and must not be who frees it.
    taken: Option<Arc<dyn AnyCall>>,
    /// A call whose asker gave up: the one that the engine has taken, or one in place of that which
    /// it has not, so that it is known when it goes on.
    owed: Option<Owed>,
}

/// A call that nobody waits for any longer.
#[derive(Debug)]
struct Owed {
    call: Arc<dyn AnyCall>,
    /// Running since it was made, or that in whose place it is.
    clock: TscClock,
}

/// The means to reach an engine's thread, made before it is.
#[derive(Debug)]
pub(crate) struct Berth {
    doorbell: Doorbell,
    wake: Arc<EventFd>,
    ended: Arc<AtomicBool>,
}

impl Berth {
    fn bell(&self) -> Bell {
        Bell { doorbell: self.doorbell.clone(), wake: self.wake.clone() }
    }
}

/// The settings of the thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadConfig {
    /// The number of the engine among those of its host, if there are several.
    pub(crate) number: Option<usize>,
    pub(crate) core: Option<usize>,
    pub(crate) idle: IdlePolicy,
}

impl EngineThread {
    /// Starts an engine in the calling thread's network namespace.
    pub(crate) fn start<B>(
        engine: HostEngine<B>,
        Berth { doorbell, wake, ended }: Berth,
        config: ThreadConfig,
        mut housekeeping: Housekeeping,
    ) -> Result<Self, HostError>
    where
        B: HostBackend + Send + 'static,
    {
        let core = config.core.map(pinnable).transpose()?;
        let (calls, stop) = (ArrayQueue::new(1), AtomicBool::new(false));
        let shared = Arc::new(Shared { calls, stop, doorbell, wake });
        let (end, seen) = (EndOfLife(ended.clone()), shared.clone());
        let body = move || {
            // Dropped last, also by a panic: its ports wake those who sleep, and they look whether
            // it has ended.
            let mut engine = engine;
            let _end = end;
            if let Some(core) = core {
                core_affinity::set_for_current(core);
            }
            run(&mut engine, &seen, config.idle, &mut housekeeping);
        };
        let name = config.number.map(|number| format!("rma-engine-{number}"));
        let thread = Worker::start(name.as_deref().unwrap_or("rma-engine"), body)
            .map_err(|source| HostError::System { what: "starting the engine thread", source })?;
        tracing::debug!(core = core.map(|core| core.id), idle = ?config.idle, "engine thread started");
        Ok(Self { shared, ended, thread: Some(thread), taken: None, owed: None })
    }

    /// Waits until `look` finds an answer, on a `clock` that was started when it was asked for.
    fn await_answer<T>(
        &self,
        clock: &TscClock,
        look: impl Fn() -> Option<T>,
    ) -> Result<T, HostError> {
        loop {
            let ended = self.ended.load(SeqCst);
            if let Some(answer) = look() {
                return Ok(answer);
            }
            if ended {
                return Err(HostError::EngineGone);
            }
            let waited = Duration::from_nanos(clock.now().as_nanos());
            if waited > STUCK_AFTER {
                return Err(HostError::EngineStuck { waited, is_under_way: false });
            }
            std::thread::yield_now();
        }
    }

    fn ring(&self) {
        if self.shared.doorbell.needs_ring() {
            self.shared.wake.wake();
        }
    }
}

impl ControlPath for EngineThread {
    type Berth = Berth;

    fn berth() -> Result<Berth, HostError> {
        let wake = EventFd::open()
            .map_err(|source| HostError::System { what: "creating an eventfd", source })?;
        Ok(Berth { doorbell: Doorbell::new(), wake: Arc::new(wake), ended: Arc::default() })
    }

    fn life_at(berth: &Berth) -> Life {
        Life::thread(berth.ended.clone())
    }

    fn seat(berth: &Berth) -> Seat {
        Seat::new(Some(berth.bell()), berth.ended.clone())
    }

    fn is_reachable(&self) -> bool {
        let is_owed = self.owed.as_ref().is_some_and(|it| !it.call.is_answered());
        !is_owed && !self.ended.load(SeqCst)
    }

    fn late(&mut self) -> Result<Option<Arc<dyn AnyCall>>, HostError> {
        let Some(Owed { call, clock }) = &self.owed else { return Ok(None) };
        match self.await_answer(clock, || call.is_answered().then_some(())) {
            // It has ended with the question: whoever is asked next says so.
            Ok(()) | Err(HostError::EngineGone) => {
                self.taken = self.owed.take().map(|it| it.call);
                Ok(self.taken.clone())
            }
            Err(error) => Err(error),
        }
    }

    fn put<Q: Question>(&mut self, question: Q) -> Asked<Q> {
        assert!(self.owed.is_none(), "the driver settles a late answer before it asks again");
        let call = Arc::new(Call::new(question));
        // One question at a time: whoever puts one waits for its answer, or takes it back.
        self.shared.calls.push(call.clone()).expect("no call is left in the queue");
        self.ring();
        Asked::UnderWay(call, TscClock::new())
    }

    fn answer<Q: Question>(&mut self, asked: Asked<Q>) -> Result<Q::Answer, Unanswered<Q>> {
        let (call, clock) = match asked {
            Asked::UnderWay(call, clock) => (call, clock),
            Asked::Known(outcome) => return outcome,
        };
        let answer = self.await_answer(&clock, || call.take_answer());
        match answer {
            Ok(answer) => {
                self.taken = Some(call);
                Ok(answer)
            }
            Err(error) if self.shared.calls.pop().is_some() => {
                let unseen = call.withdraw();
                if !self.ended.load(SeqCst) {
                    let call: Arc<dyn AnyCall> = Arc::new(Call::new(TakeKeys));
                    let pushed = self.shared.calls.push(call.clone());
                    pushed.expect("the question was taken out");
                    self.owed = Some(Owed { call, clock });
                }
                Err(Unanswered { error, unseen })
            }
            Err(error) => {
                self.owed = Some(Owed { call, clock });
                Err(Unanswered { error, unseen: None })
            }
        }
    }

    fn go_on(&mut self) -> bool {
        false
    }

    fn publish_gauges(&self) {}

    fn bell(&self) -> Option<Bell> {
        Some(Bell { doorbell: self.shared.doorbell.clone(), wake: self.shared.wake.clone() })
    }

    fn life(&self) -> Life {
        Life::thread(self.ended.clone())
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        self.shared.wake.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the engine has been printed already, and every wait has said `EngineGone`.
            thread.join();
            tracing::debug!("engine thread stopped");
        }
    }
}

fn pinnable(core: usize) -> Result<core_affinity::CoreId, HostError> {
    HostError::check_core(core)?;
    Ok(core_affinity::CoreId { id: core })
}

/// The body of the thread.
fn run<B: HostBackend>(
    engine: &mut HostEngine<B>,
    shared: &Shared,
    policy: IdlePolicy,
    housekeeping: &mut Housekeeping,
) {
    let mut idle = IdleTracker::new(policy);
    while !shared.stop.load(Relaxed) {
        if let Some(call) = shared.calls.pop() {
            call.serve(&mut Side::of(engine));
        }
        housekeeping.turn(engine);
        if engine.turn() > 0 {
            idle.busy();
            continue;
        }
        match idle.idle(engine.clock().now()) {
            Idle::Spin => core::hint::spin_loop(),
            Idle::Yield => std::thread::yield_now(),
            Idle::Sleep => {
                // A thread that reads the gauges during the sleep should not see what was before.
                engine.service().publish_gauges();
                sleep(engine, shared);
                housekeeping.due();
            }
        }
    }
}

/// Sleeps until a frame, a command, a question or a timeout. Returns at once if one is there
/// already.
fn sleep<B: HostBackend, S: HostService>(engine: &Engine<B, TscClock, S>, shared: &Shared) {
    engine.announce_sleep();
    shared.doorbell.prepare_sleep();
    if engine.is_idle() && shared.calls.is_empty() && !shared.stop.load(SeqCst) {
        let now = engine.clock().now();
        let until = engine.service().poll_timeout().map_or(SLEEP_MAX, |at| at.since(now));
        let starved = engine.service().is_starved() || engine.backend().awaits_path();
        let most = if starved { STARVED_SLEEP_MAX } else { SLEEP_MAX };
        wait_readable(engine.backend(), shared.wake.as_fd(), until.min(most));
        shared.wake.drain();
    }
    shared.doorbell.awake();
    engine.awake();
}

fn wait_readable<B: HostBackend>(backend: &B, wake: BorrowedFd<'_>, timeout: Duration) {
    let mut fds = [const { None }; FDS_MAX];
    fds[0] = Some(wake);
    let mut count = 1;
    backend.for_each_fd(|fd| {
        // A device with more queues than that is seen after `SLEEP_MAX` at the latest.
        if let Some(place) = fds.get_mut(count) {
            *place = Some(fd);
            count += 1;
        }
    });
    let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd.unwrap_or(wake), PollFlags::IN));
    // Interrupted by a signal, or woken for nothing: the engine looks and sleeps again.
    let _ = poll(&mut fds[..count], Some(&timespec(timeout)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        driver::{Ledger, control::EngineSide},
        services::Beside,
    };
    use rma_core::{
        addr::HostAddr,
        backend::{Backend, RxPacket, TxFrame},
        nic::{Nic, NicConfigBuilder, NicPlace, ReceiveLenMax},
        one_rma::OneRma,
        portal::PortalMemory,
        time::Instant,
    };
    use rma_shm::Mapping;

    /// The driver's end, with the engine's end in the test's hands.
    fn without_engine() -> EngineThread {
        let shared = Shared {
            calls: ArrayQueue::new(1),
            stop: AtomicBool::new(false),
            doorbell: Doorbell::new(),
            wake: Arc::new(EventFd::open().unwrap()),
        };
        EngineThread {
            shared: Arc::new(shared),
            ended: Arc::default(),
            thread: None,
            taken: None,
            owed: None,
        }
    }

    /// A question that is answered with its double.
    #[derive(Debug)]
    struct Double(u64);

    impl Question for Double {
        type Answer = u64;

        fn answer(self, _: &mut dyn EngineSide) -> u64 {
            self.0 * 2
        }

        fn undo(self, _: &mut Ledger) {}

        fn settle(_: u64, _: &mut Ledger) {}
    }

    /// Nothing that a question could touch.
    struct Nothing;

    impl EngineSide for Nothing {
        fn regions(&mut self) -> &mut rma_core::nic::RegionTable {
            unreachable!("nothing here asks for it")
        }

        fn deregister(
            &mut self,
            region: rma_core::region::RegionId,
        ) -> Result<Box<rma_core::nic::RegionEntry>, rma_core::error::RegionError> {
            Err(rma_core::error::RegionError::NotRegistered { region })
        }

        fn attach(
            &mut self,
            _: rma_core::portal::PortalPort,
            _: rma_core::addr::Pid,
            _: rma_core::nic::TenantIndex,
        ) {
        }

        fn detach(&mut self, _: &core::ops::Range<u16>) -> Option<rma_core::portal::PortalPort> {
            None
        }
    }

    impl Beside for Nothing {}

    /// A device that nothing comes from, nor goes to.
    struct NoDevice;

    impl Backend for NoDevice {
        fn rx_burst(&mut self, _: usize, _: impl FnMut(&mut [RxPacket<'_>])) -> usize {
            0
        }

        fn tx_burst(&mut self, _: usize, _: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
            0
        }

        fn flush(&mut self, _: Instant) {}
    }

    impl HostBackend for NoDevice {
        fn receive_len_max(&self) -> ReceiveLenMax {
            ReceiveLenMax::default()
        }

        fn for_each_fd<'a>(&'a self, _: impl FnMut(BorrowedFd<'a>)) {}
    }

    #[test]
    fn an_engine_that_sleeps_says_so_in_the_memory_of_its_portals_until_it_wakes() {
        let mapping = Arc::new(Mapping::heap(PortalMemory::footprint(1)));
        let memory = PortalMemory::format(&mapping, 1).unwrap();
        let told = memory.engine_doorbell().clone();
        let mut port = memory.into_port(0..1);
        port.set_engine_doorbell(told.clone());
        let place = NicPlace::at(HostAddr::from([192, 0, 2, 1]));
        let nic = Nic::new(NicConfigBuilder::default().build(place).unwrap());
        let mut service = OneRma::new(nic);
        service.attach(port);
        let engine = Engine::new(service, NoDevice, TscClock::new());
        let driver = without_engine();
        let shared = driver.shared.clone();
        let engine = std::thread::spawn(move || {
            while !shared.stop.load(SeqCst) {
                sleep(&engine, &shared);
            }
        });
        let (clock, long) = (TscClock::new(), Instant::from_nanos(10_000_000_000));
        while !told.is_sleeping() {
            assert!(clock.now() < long, "it sleeps and does not say so");
            std::thread::yield_now();
        }
        driver.shared.stop.store(true, SeqCst);
        driver.shared.wake.wake();
        engine.join().unwrap();
        assert!(!told.needs_ring());
    }

    #[test]
    fn every_question_to_an_engine_that_has_ended_is_answered_with_that() {
        let mut engine = without_engine();
        engine.ended.store(true, SeqCst);
        for _ in 0..3 {
            let Unanswered { error, unseen } = engine.ask(Double(1)).unwrap_err();
            assert!(matches!(error, HostError::EngineGone), "{error}");
            assert!(unseen.is_some(), "nobody has taken it");
        }
    }

    #[test]
    fn each_engine_needs_a_core_of_its_own_if_cores_are_named() {
        assert!(check_cores(&[], 4).is_ok(), "none is pinned");
        assert!(check_cores(&[7, 3], 2).is_ok() && check_cores(&[7, 3], 1).is_ok());
        let error = |cores: &[usize], engines| check_cores(cores, engines).unwrap_err().to_string();
        assert!(error(&[7, 3], 3).contains("2 core(s) were named for 3 engines"));
        assert!(error(&[7, 7], 2).contains("1 core(s) were named for 2 engines"));
    }

    #[test]
    fn an_answer_that_came_too_late_is_told_from_the_next_one() {
        let mut engine = without_engine();
        // The engine had taken a question when its asker gave up; then it answered.
        let late = Arc::new(Call::new(Double(1)));
        engine.owed = Some(Owed { call: late.clone(), clock: TscClock::new() });
        late.serve(&mut Nothing);
        let shared = engine.shared.clone();
        let answering = std::thread::spawn(move || {
            loop {
                if let Some(call) = shared.calls.pop() {
                    return call.serve(&mut Nothing);
                }
                std::thread::yield_now();
            }
        });
        assert!(engine.late().unwrap().is_some_and(|call| call.is_answered()));
        assert!(engine.late().unwrap().is_none(), "there was one");
        assert_eq!(late.take_answer(), Some(2));
        assert_eq!(engine.ask(Double(2)).unwrap(), 4);
        answering.join().unwrap();
    }
}
