//! Queue pairs as futures, between two hosts: buffers come back, whatever becomes of the future,
//! the work request and the engine.

use core::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use rma_xdp::{
    BufferPool, Host, RegionBuf, WaitError,
    star::{
        Access, AsyncQp, AsyncVerbs, CqId, PostError, Qp, QpConfig, Remote, Role, StarPortalConfig,
        StarVerbs, WcStatus, WorkError,
    },
};

use super::star::{connect, hosts};

const BUF: u32 = 4096;

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
    rkey: u32,
    pool: BufferPool,
}

impl End {
    fn new(host: &Host, role: Role) -> Self {
        let mut verbs = host.verbs(StarPortalConfig::default()).unwrap();
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
        let (qp, rkey) = (verbs.qp(qp, &mr), mr.rkey());
        Async { verbs, qp, rkey, pool }
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
            std::thread::yield_now();
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
    // When nobody has the queue pair any more, it is closed, whatever its peer does.
    assert_eq!(pool.free(), 3);
    drop((verbs, qp));
    while pool.free() < 4 {
        std::thread::yield_now();
    }
}

#[test]
fn what_is_refused_or_fails_gives_its_buffer_back() {
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
