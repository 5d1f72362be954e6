//! Queue pairs as futures, between two hosts: buffers come back, whatever becomes of the future,
//! the work request and the engine.

use core::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use std::{
    future, io,
    os::unix::net::UnixStream,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread,
};

use rma_xdp::{
    BufferPool, Host, RegionBuf, WaitError,
    config::IdlePolicy,
    star::{
        Access, AsyncQp, AsyncVerbs, CqId, PostError, Qp, QpConfig, Remote, Role, SetUpError,
        SetUpStream, StarPortalConfig, StarVerbs, WcStatus, WorkError,
    },
};

use super::star::{connect, hosts};

const BUF: u32 = 4096;

/// How long something is waited for that would never come if a wake-up was lost.
const PATIENCE: Duration = Duration::from_secs(60);

struct End {
    verbs: StarVerbs,
    cq: CqId,
    qp: Qp,
    mr: rma_xdp::star::MemoryRegion,
    pool: BufferPool,
}

/// An end that is as futures.
struct Async {
    verbs: AsyncVerbs,
    qp: AsyncQp,
    number: Qp,
    mr: rma_xdp::star::MemoryRegion,
    rkey: u32,
    pool: BufferPool,
}

impl End {
    fn new(host: &Host, role: Role) -> Self {
        Self::over(host, host.verbs(StarPortalConfig::default()).unwrap(), role)
    }

    fn over(host: &Host, mut verbs: StarVerbs, role: Role) -> Self {
        let pd = host.alloc_pd(&verbs).unwrap();
        let pool = host.buffer_pool(4, BUF).unwrap();
        let memory = pool.region().memory().clone();
        let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let span = 0..memory.len() as u64;
        let mr = host.reg_mr_of(&pd, memory, span, all).unwrap();
        let cq = verbs.create_cq(8);
        let config = QpConfig { role, send_depth: 2, ..QpConfig::default() };
        let qp = verbs.create_qp(&pd, cq, cq, config).unwrap();
        Self { verbs, cq, qp, mr, pool }
    }

    fn start(self) -> Async {
        let Self { verbs, cq, qp, mr, pool } = self;
        let verbs = AsyncVerbs::start(verbs, cq).unwrap();
        let (number, qp, rkey) = (qp, verbs.qp(qp, &mr), mr.rkey());
        Async { verbs, qp, number, mr, rkey, pool }
    }
}

fn pair(hosts: &[Host; 2]) -> [Async; 2] {
    let [mut one, mut other] =
        [(0, Role::Stateless), (1, Role::Stateful)].map(|(at, role)| End::new(&hosts[at], role));
    for result in connect((&mut one.verbs, one.qp), (&mut other.verbs, other.qp)) {
        result.unwrap();
    }
    [one.start(), other.start()]
}

impl Async {
    /// A buffer with these bytes.
    fn buf(&self, bytes: &[u8]) -> RegionBuf {
        let mut buf = self.pool.try_acquire().unwrap();
        buf.set_len(bytes.len());
        buf.write(0, bytes).unwrap();
        buf
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        self.verbs.block_on(future).unwrap()
    }

    /// Until so many buffers are free.
    fn until_free(&self, count: usize) {
        while self.pool.free() != count {
            thread::yield_now();
        }
    }
}

#[test]
fn buffers_go_out_and_come_back_with_what_became_of_them() {
    let hosts = hosts();
    let [one, other] = pair(&hosts);
    for (here, there) in [(&one, &other), (&other, &one)] {
        let mut recv = pin!(there.qp.recv(there.pool.try_acquire().unwrap()));
        // It is posted when it is first polled.
        assert!(recv.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let (sent, buf) = here.run(here.qp.send(here.buf(b"message")).with_imm(7).inline());
        assert_eq!((sent.unwrap().byte_len, buf.to_vec()), (7, b"message".to_vec()));
        let (received, message) = there.run(recv);
        assert_eq!((received.unwrap().imm, message.to_vec()), (Some(7), b"message".to_vec()));
        drop((buf, message));

        let remote = Remote::of(there.rkey, 3 * u64::from(BUF));
        let (written, buf) = here.run(here.qp.write(here.buf(b"written"), remote));
        written.unwrap();
        drop(buf);
        let mut buf = here.pool.try_acquire().unwrap();
        buf.set_len(7);
        let (read, buf) = here.run(here.qp.read(buf, remote));
        assert_eq!((read.unwrap().byte_len, buf.to_vec()), (7, b"written".to_vec()));
    }
    assert_eq!([one.pool.free(), other.pool.free()], [4, 4]);
}

#[test]
fn the_buffer_of_a_future_that_was_dropped_is_kept_until_its_work_request_is_over() {
    let hosts = hosts();
    let [one, other] = pair(&hosts);
    {
        let mut recv = pin!(other.qp.recv(other.pool.try_acquire().unwrap()));
        assert!(recv.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(other.pool.free(), 3, "a message may come");
    // One that was never polled was not posted.
    drop(other.qp.recv(other.pool.try_acquire().unwrap()));
    assert_eq!(other.pool.free(), 3);
    let (sent, buf) = one.run(one.qp.send(one.buf(b"lost")));
    sent.unwrap();
    other.until_free(4);
    drop(buf);
    // The same of what is flushed.
    {
        let mut recv = pin!(other.qp.recv(other.pool.try_acquire().unwrap()));
        assert!(recv.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let Async { verbs, qp, pool, .. } = other;
    // When nobody has the queue pair any longer, it is closed, whatever its peer does.
    assert_eq!(pool.free(), 3);
    drop((verbs, qp));
    while pool.free() < 4 {
        thread::yield_now();
    }
}

#[test]
fn refused_or_failed_work_gives_its_buffer_back() {
    let hosts = hosts();
    let [one, other] = pair(&hosts);
    let foreign = other.pool.try_acquire().unwrap();
    let (refused, _buf) = one.run(one.qp.send(foreign));
    assert_eq!(refused.unwrap_err(), WorkError::OtherMemory);
    let too_long = one.pool.try_acquire().unwrap();
    let (refused, buf) = one.run(one.qp.send(too_long).inline());
    let refused = refused.unwrap_err();
    assert!(matches!(refused, WorkError::Refused(PostError::TooLong { .. })), "{refused}");
    // Beyond the peer's memory.
    let remote = Remote::of(other.rkey, 4 * u64::from(BUF) - 1);
    let (failed, buf) = one.run(one.qp.write(buf, remote));
    assert_eq!(failed.unwrap_err(), WorkError::Failed(WcStatus::RemAccessErr));
    let (refused, _buf) = one.run(one.qp.send(buf));
    assert_eq!(refused.unwrap_err(), WorkError::Refused(PostError::QpInError));
}

#[test]
fn an_engine_that_ends_gives_all_buffers_back() {
    let [host, peers] = hosts();
    let hosts = [host, peers];
    let [one, other] = pair(&hosts);
    let mut recv = pin!(one.qp.recv(one.pool.try_acquire().unwrap()));
    let poll = recv.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(poll, Poll::Pending));
    let [host, _peers] = hosts;
    drop(host);
    let (result, buf) = one.run(recv);
    assert_eq!(result.unwrap_err(), WorkError::Unfinished(WaitError::EngineGone));
    let (result, again) = one.run(one.qp.send(buf));
    assert_eq!(result.unwrap_err(), WorkError::Unfinished(WaitError::EngineGone));
    drop(again);
    assert_eq!(one.pool.free(), 4);
    drop(other);
}

/// Returns the policy of a thread that sleeps at once, so that each wake-up counts.
fn lazy() -> IdlePolicy {
    IdlePolicy::default().with(|it| (it.spin, it.yield_for) = Default::default())
}

/// A queue pair that another connection is to have.
fn another(host: &Host, verbs: &AsyncVerbs, (cq, role): (CqId, Role)) -> Qp {
    verbs
        .with(|verbs| {
            let pd = host.alloc_pd(verbs).unwrap();
            let config = QpConfig { role, ..QpConfig::default() };
            verbs.create_qp(&pd, cq, cq, config).unwrap()
        })
        .unwrap()
}

/// Both ends of a connection with threads that poll, sleep at once, and do so now.
fn lazy_pair(hosts: &[Host; 2]) -> [(Async, CqId); 2] {
    let [mut one, mut other] =
        [(0, Role::Stateless), (1, Role::Stateful)].map(|(at, role)| End::new(&hosts[at], role));
    for result in connect((&mut one.verbs, one.qp), (&mut other.verbs, other.qp)) {
        result.unwrap();
    }
    [one, other].map(|mut end| {
        end.verbs.set_idle(lazy());
        let cq = end.cq;
        (end.start(), cq)
    })
}

/// A message each way, which a thread awaits: `false` if one of its futures is never woken.
fn exchange(one: &Async, other: &Async) -> bool {
    let (done, is_done) = mpsc::channel();
    for (here, there) in [(one, other), (other, one)] {
        let done = done.clone();
        let bufs = [there.pool.try_acquire().unwrap(), here.buf(b"message")];
        let (verbs, peers) = (here.verbs.clone(), there.verbs.clone());
        let (qp, its) = (here.qp.clone(), there.qp.clone());
        // Threads that nobody waits for: of a lost wake-up they sleep for ever.
        thread::spawn(move || {
            let [to, from] = bufs;
            let sent = thread::spawn(move || verbs.block_on(qp.send(from)).unwrap().0);
            let (received, buf) = peers.block_on(its.recv(to)).unwrap();
            received.unwrap();
            assert_eq!(buf.to_vec(), b"message");
            sent.join().unwrap().unwrap();
            done.send(()).unwrap();
        });
    }
    drop(done);
    (0..2).all(|_| is_done.recv_timeout(PATIENCE).is_ok())
}

#[test]
fn futures_go_on_beside_and_after_set_ups_of_threads_that_have_the_library() {
    let hosts = hosts();
    let [(one, one_cq), (other, other_cq)] = lazy_pair(&hosts);
    for _ in 0..4 {
        let [its, others] = [
            another(&hosts[0], &one.verbs, (one_cq, Role::Stateless)),
            another(&hosts[1], &other.verbs, (other_cq, Role::Stateful)),
        ];
        let (mut here, mut there) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let verbs = &other.verbs;
            let accepts = scope.spawn(move || {
                verbs.with(|verbs| verbs.accept_over(others, &mut there)).unwrap().unwrap()
            });
            one.verbs.with(|verbs| verbs.connect_over(its, &mut here)).unwrap().unwrap();
            accepts.join().unwrap();
        });
        assert!(exchange(&one, &other), "a future was not woken");
        one.verbs.with(|verbs| verbs.close(its)).unwrap();
        other.verbs.with(|verbs| verbs.close(others)).unwrap();
    }
}

#[test]
fn a_panic_of_who_has_slept_with_the_library_leaves_nobody_asleep() {
    let hosts = hosts();
    let [(one, _), (other, other_cq)] = lazy_pair(&hosts);
    let (done, is_done) = mpsc::channel();
    let (verbs, qp, buf) =
        (other.verbs.clone(), other.qp.clone(), other.pool.try_acquire().unwrap());
    thread::spawn(move || {
        verbs.block_on(qp.recv(buf)).unwrap().0.unwrap();
        done.send(()).unwrap();
    });
    let panics = catch_unwind(AssertUnwindSafe(|| {
        let _panics = other.verbs.with(|verbs| {
            let mut wcs = [rma_xdp::star::Wc::EMPTY];
            let brief = Duration::from_millis(5);
            assert_eq!(verbs.wait_cq_timeout(other_cq, &mut wcs, brief), Ok(0));
            panic!("as an application does");
        });
    }));
    assert!(panics.is_err());
    let (sent, _buf) = one.run(one.qp.send(one.buf(b"taken")));
    sent.unwrap();
    is_done.recv_timeout(PATIENCE).expect("the future was woken");
    assert!(exchange(&one, &other), "a future was not woken");
}

#[test]
fn nobody_arms_a_descriptor_beside_the_thread_that_polls_for_futures() {
    let hosts = hosts();
    let [(one, _), _other] = lazy_pair(&hosts);
    one.verbs
        .with(|verbs| {
            assert!(verbs.completion_fd().is_none());
            assert!(!verbs.arm());
            verbs.disarm();
        })
        .unwrap();
}

/// A peer that is connected and says nothing.
struct Silent;

impl SetUpStream for Silent {
    async fn read_exact(&mut self, _: &mut [u8]) -> io::Result<()> {
        future::pending().await
    }

    async fn write_all(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn futures_go_on_beside_peers_that_are_silent_in_a_set_up_which_ends_in_its_time() {
    let hosts = hosts();
    let [(one, one_cq), (other, other_cq)] = lazy_pair(&hosts);
    // One that never ends, as its time is long.
    let silent = another(&hosts[0], &one.verbs, (one_cq, Role::Stateless));
    let mut stream = Silent;
    let mut accepts = pin!(one.verbs.accept(silent, &mut stream));
    assert!(accepts.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(exchange(&one, &other), "a future was not woken");
    // Others are set up meanwhile, several at once, in any order at the two ends.
    let ends = [(); 8].map(|()| {
        let its = another(&hosts[0], &one.verbs, (one_cq, Role::Stateless));
        (its, another(&hosts[1], &other.verbs, (other_cq, Role::Stateful)))
    });
    thread::scope(|scope| {
        for (at, (its, others)) in ends.into_iter().enumerate() {
            let (mut here, mut there) = UnixStream::pair().unwrap();
            let (one, other) = (one.verbs.clone(), other.verbs.clone());
            scope.spawn(move || match at % 2 {
                0 => one.connect_over(its, &mut here).unwrap(),
                _ => one.accept_over(its, &mut here).unwrap(),
            });
            scope.spawn(move || match at % 2 {
                0 => other.accept_over(others, &mut there).unwrap(),
                _ => other.connect_over(others, &mut there).unwrap(),
            });
        }
    });
    assert!(exchange(&one, &other), "a future was not woken");
}

#[test]
fn a_set_up_ends_in_its_time_whatever_its_stream_does() {
    let hosts = hosts();
    let brief = Duration::from_millis(50);
    let config = StarPortalConfig::default().with(|it| it.verbs.set_up_timeout = brief);
    let end = End::over(&hosts[0], hosts[0].verbs(config).unwrap(), Role::Stateless);
    let (one_cq, one) = (end.cq, end.start());
    let mut ends = Vec::new();
    let qps = [(); 4].map(|()| another(&hosts[0], &one.verbs, (one_cq, Role::Stateless)));
    ends.push(one.run(one.verbs.accept(qps[0], &mut Silent)));
    ends.push(one.run(one.verbs.connect(qps[1], &mut Silent)));
    let (mut stream, _other_end) = UnixStream::pair().unwrap();
    stream.set_read_timeout(Some(brief / 10)).unwrap();
    ends.push(one.verbs.accept_over(qps[2], &mut stream));
    stream.set_nonblocking(true).unwrap();
    ends.push(one.verbs.connect_over(qps[3], &mut stream));
    for (ended, qp) in ends.into_iter().zip(qps) {
        assert!(
            matches!(ended, Err(SetUpError::TimedOut { .. } | SetUpError::Failed)),
            "{ended:?}"
        );
        one.verbs.with(|verbs| verbs.close(qp)).unwrap();
    }
}

#[test]
fn a_waiter_for_the_end_of_a_connection_is_woken_by_it() {
    let hosts = hosts();
    let [(one, one_cq), (other, _)] = lazy_pair(&hosts);
    let unused = another(&hosts[0], &one.verbs, (one_cq, Role::Stateless));
    let unused = one.verbs.qp(unused, &one.mr);
    let (ended, ends) = mpsc::channel();
    let waits = |qp: AsyncQp, verbs: AsyncVerbs| {
        let ended = ended.clone();
        thread::spawn(move || {
            verbs.block_on(qp.over()).unwrap();
            ended.send(()).unwrap();
        });
    };
    waits(other.qp.clone(), other.verbs.clone());
    assert!(exchange(&one, &other));
    assert!(ends.try_recv().is_err(), "it works");
    // The peer closes it, and tells so.
    one.verbs.with(|verbs| verbs.close(one.number)).unwrap();
    ends.recv_timeout(PATIENCE).expect("it is over at the peer");
    waits(one.qp.clone(), one.verbs.clone());
    ends.recv_timeout(PATIENCE).expect("it is over here");
    waits(unused, one.verbs.clone());
    let [host, _peers] = hosts;
    assert!(ends.try_recv().is_err(), "nobody has closed it");
    drop(host);
    ends.recv_timeout(PATIENCE).expect("nobody would tell");
}

#[test]
fn a_work_request_waits_for_a_place_if_it_may() {
    let hosts = hosts();
    let [one, other] = pair(&hosts);
    // Two places, and no RECV at the peer.
    let bufs = [1, 2, 3, 4].map(|byte| one.buf(&[byte]));
    let mut sends = bufs.map(|buf| Box::pin(one.qp.send(buf).when_free()));
    for send in &mut sends {
        assert!(send.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let refused = {
        let buf = other.pool.try_acquire().unwrap();
        one.run(one.qp.send(buf).when_free()).0
    };
    assert_eq!(refused.unwrap_err(), WorkError::OtherMemory);
    thread::scope(|scope| {
        let receives = scope.spawn(|| {
            [(); 4].map(|()| {
                let (received, buf) = other.run(other.qp.recv(other.pool.try_acquire().unwrap()));
                received.unwrap();
                buf.to_vec()
            })
        });
        for send in sends {
            one.run(send).0.unwrap();
        }
        assert_eq!(receives.join().unwrap(), [1, 2, 3, 4].map(|byte| vec![byte]));
    });
    // Of a connection that has ended it does not wait.
    one.verbs.with(|verbs| verbs.close(one.number)).unwrap();
    let (refused, _buf) = one.run(one.qp.send(one.buf(b"late")).when_free());
    assert!(matches!(refused, Err(WorkError::Refused(_))), "{refused:?}");
}
