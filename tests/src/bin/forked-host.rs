//! Forks after it has opened hosts, and goes on in parent and child: for the test of what each of
//! them may do then.
//!
//! `forked-host CREDENTIALS udp`, or `forked-host CREDENTIALS INTERFACE ADDRESS STATE_DIR` over
//! AF_XDP; in the directory CREDENTIALS are those of a client of some key service. When it forks,
//! other threads have the locks of what futures and keys share. In the child every call has to be
//! refused at once, and all is dropped; the parent issues ops meanwhile. It ends with 0 if all is
//! well, and says otherwise what is not. A child that waits is killed.

use core::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use std::{
    path::Path,
    process::{ExitCode, exit},
    sync::mpsc::{Sender, channel},
    thread,
};

use rma_star::library::{Qp, Wc};
use rma_xdp::{
    BufferPool, Client, Grant, Host, HostConfig, HostError, InlineHost, OpStatus, OpType,
    Permissions, Portal, RegionBuf, RegisteredRegion, SubmitError, TransferError, Transfers,
    WaitError,
    config::CounterConfig,
    keys::{CacheError, Holder, KeyCache, KeyedRegion, NoKey, OpSet, Source},
    memory::Forked,
    messages::{ReceiveQueueLayout, Receiver},
    metrics::MetricsEndpoint,
    star::{
        Access, AsyncQp, AsyncVerbs, QpConfig, SetUpError, SetUpStream, StarConfigBuilder,
        StarPortalConfig, StarVerbs,
    },
};

/// After how many seconds a child that waits is killed.
const PATIENCE_S: u32 = 60;

/// Ops of the parent, at least, while the child does what it does.
const OPS: u64 = 200;

fn config(args: &[String]) -> HostConfig {
    let config = match args {
        [udp] if udp == "udp" => HostConfig::udp([127, 0, 0, 203]),
        [interface, address, state_dir] => HostConfig::xdp(interface).with(|it| {
            it.addresses = vec![address.parse().expect("an address")];
            it.counter = CounterConfig::default().with(|it| it.state_dir = Some(state_dir.into()));
        }),
        _ => panic!("udp, or INTERFACE ADDRESS STATE_DIR"),
    };
    config.with(|it| it.star = Some(StarConfigBuilder::default()))
}

/// All that is made before the fork.
struct Made {
    host: Host,
    region: RegisteredRegion,
    grant: Grant,
    portal: Portal,
    executor: Transfers,
    client: Client,
    buffers: BufferPool,
    /// A buffer that the parent has.
    _buffer: RegionBuf,
    receiver: Receiver,
    verbs: StarVerbs,
    futures: Futures,
    keys: Keys,
    inline: InlineHost,
    metrics: MetricsEndpoint,
}

/// StaR's futures.
struct Futures {
    /// Dropped first: until then another thread has their lock.
    _holds: Sender<()>,
    verbs: AsyncVerbs,
    qp: AsyncQp,
    number: Qp,
}

impl Futures {
    fn new(host: &Host) -> Result<Self, HostError> {
        let mut verbs = host.verbs(StarPortalConfig::default())?;
        let pd = host.alloc_pd(&verbs)?;
        let mr = host.reg_mr(&pd, 64, Access::LOCAL_WRITE)?;
        let cq = verbs.create_cq(4);
        let number = verbs.create_qp(&pd, cq, cq, QpConfig::default()).expect("there is room");
        let verbs = AsyncVerbs::new(verbs, cq);
        let qp = verbs.qp(number, &mr);
        let other = verbs.clone();
        let holds = hold(move |told| other.with(|_| told()).expect("it is the parent's"));
        Ok(Self { verbs, qp, number, _holds: holds })
    }

    fn refusals(&self) -> Vec<(&'static str, bool)> {
        let Self { verbs, qp, number, .. } = self;
        let forked = Err(WaitError::Forked(Forked));
        let set_up = poll_once(verbs.connect(*number, &mut Silent));
        let is_refused =
            matches!(set_up, Poll::Ready(Err(SetUpError::Wait(WaitError::Forked(Forked)))));
        vec![
            ("AsyncVerbs::with", verbs.with(|_| ()) == forked),
            ("AsyncVerbs::poll", verbs.poll() == 0),
            ("AsyncVerbs::block_on", verbs.block_on(async {}) == forked),
            ("AsyncVerbs::connect", is_refused),
            ("AsyncQp::over", poll_once(qp.over()).is_ready()),
        ]
    }
}

/// Keys of a service that there is not.
struct Keys {
    /// Dropped first, as above.
    _holds: Sender<()>,
    grants: KeyCache,
    service: Source,
    region: KeyedRegion,
    holder: Holder,
}

impl Keys {
    fn new(host: &Host, credentials: &Path) -> Self {
        let holder = Holder { initiators: host.addresses(), pid: host.pid() };
        let grants = KeyCache::start(holder, credentials).expect("credentials in order");
        let nowhere = vec![([127, 0, 0, 205], 1).into()];
        let server = "spiffe://example.org/server".parse().expect("an identity");
        let service = grants.source(nowhere, server).expect("it is the parent's");
        let region = grants.region(service, "a".parse().expect("a name"), Self::OPS);
        let region = region.expect("there is room");
        let other = grants.clone();
        let holds = hold(move |told| other.with_cache(|_, _| told()).expect("it is the parent's"));
        Self { grants, service, region, holder, _holds: holds }
    }

    const OPS: OpSet = OpSet::NONE.with(OpType::Read);

    fn refusals(&self) -> Vec<(&'static str, bool)> {
        let Self { grants, service, region, holder, .. } = self;
        let name = "b".parse().expect("a name");
        let of_cache = |it| matches!(it, CacheError::Forked(Forked));
        let ready = poll_once(region.ready(Duration::from_secs(PATIENCE_S.into())));
        let (waited, op_type) = (Duration::ZERO, OpType::Read);
        vec![
            ("KeyCache::with_cache", grants.with_cache(|_, _| ()) == Err(Forked)),
            ("KeyCache::rebind", grants.rebind(*holder) == Err(Forked)),
            ("KeyCache::region", grants.region(*service, name, Self::OPS).is_err_and(of_cache)),
            ("KeyCache::counters", grants.counters() == Default::default()),
            ("KeyedRegion::grant", region.grant(op_type).is_none()),
            ("KeyedRegion::late", matches!(region.late(waited), NoKey::Forked(Forked))),
            ("KeyedRegion::ready", matches!(ready, Poll::Ready(Err(NoKey::Forked(Forked))))),
        ]
    }
}

/// Starts a thread that does something under a lock, from before this returns until what it
/// returns is dropped.
fn hold(lock: impl FnOnce(&dyn Fn()) + Send + 'static) -> Sender<()> {
    let (has_it, is_held) = channel();
    let (holds, held) = channel::<()>();
    thread::spawn(move || {
        lock(&|| {
            has_it.send(()).expect("it is waited for");
            // Ends with an error, when the other end is dropped.
            let _ = held.recv();
        });
    });
    is_held.recv().expect("the lock is free");
    holds
}

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A peer that is connected and says nothing.
struct Silent;

impl SetUpStream for Silent {
    async fn read_exact(&mut self, _: &mut [u8]) -> std::io::Result<()> {
        core::future::pending().await
    }

    async fn write_all(&mut self, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }
}

impl Made {
    fn new(args: &[String]) -> Result<Self, HostError> {
        let (credentials, args) = args.split_first().expect("credentials");
        let credentials = Path::new(credentials);
        let host = Host::open(config(args))?;
        let address = host.addresses().iter().next().expect("it has one");
        let region = host.register(4096, Permissions::READ)?;
        // A host may read from itself.
        let grant = host.grant(&region, address, host.pid(), OpType::Read)?;
        let portal = host.portal(4)?;
        let executor = host.transfers(4)?;
        let client = Client::start(host.transfers(4)?)?;
        let layout = ReceiveQueueLayout::new(4, 64).expect("a power of two");
        let receiver = client.receiver(host.receive_queue(layout, Permissions::SEND)?);
        let buffers = host.buffer_pool(2, 64)?;
        let buffer = buffers.try_acquire().expect("both are free");
        let verbs = host.verbs(StarPortalConfig::default())?;
        let (futures, keys) = (Futures::new(&host)?, Keys::new(&host, credentials));
        let inline = InlineHost::open(HostConfig::udp([127, 0, 0, 204]))?;
        let metrics =
            MetricsEndpoint::start(([127, 0, 0, 1], 0).into(), host.metrics_source().clone());
        let metrics = metrics.expect("a port of loopback is free");
        Ok(Self {
            host,
            region,
            grant,
            portal,
            executor,
            client,
            buffers,
            _buffer: buffer,
            receiver,
            verbs,
            futures,
            keys,
            inline,
            metrics,
        })
    }

    fn read(&mut self) -> Result<OpStatus, String> {
        let read = self.portal.read(&self.grant, 0, &self.region, 64, 64);
        read.map_err(|error| error.to_string())?;
        let done = self.portal.wait_timeout(Duration::from_secs(PATIENCE_S.into()));
        let done = done.map_err(|error| error.to_string())?;
        done.map(|it| it.status).ok_or_else(|| "the wake-up did not come".to_owned())
    }

    /// All calls of a child, and whether each was refused for what it is.
    fn refusals(&mut self) -> Vec<(&'static str, bool)> {
        let Self { host, region, grant, portal, executor, client, buffers, receiver, .. } = self;
        let (verbs, inline) = (&mut self.verbs, &mut self.inline);
        let of_host = |it: HostError| matches!(it, HostError::Forked(Forked));
        let layout = ReceiveQueueLayout::new(4, 64).expect("a power of two");
        let permissions = Permissions::READ;
        let read = portal.read(grant, 0, region, 64, 64);
        let mut refusals = vec![
            ("Portal::read", matches!(read, Err(SubmitError::Forked(Forked)))),
            ("Portal::wait", matches!(portal.wait(), Err(WaitError::Forked(Forked)))),
            ("Portal::arm", !portal.arm()),
            ("Host::register", host.register(64, permissions).is_err_and(of_host)),
            ("Host::deregister", host.deregister(region).is_err_and(of_host)),
            ("Host::portal", host.portal(1).is_err_and(of_host)),
            ("Host::transfers", host.transfers(1).is_err_and(of_host)),
            (
                "Host::grant",
                host.grant(region, grant.initiator, grant.pid, OpType::Read).is_err_and(of_host),
            ),
            ("Host::resolve", host.resolve(grant.responder).is_err_and(of_host)),
            (
                "Host::receive_queue",
                host.receive_queue(layout, Permissions::SEND).is_err_and(of_host),
            ),
            ("Host::fallbacks", host.fallbacks() == [Forked.to_string()]),
            ("Host::metrics", !host.metrics().engines_are_up()),
            ("Host::interface", host.interface().is_none()),
            ("Host::narrow_paths", host.narrow_paths().is_empty()),
            ("Host::address_status", host.address_status().is_empty()),
            ("BufferPool::try_acquire", buffers.try_acquire().is_none()),
            ("BufferPool::free", buffers.free() == 0),
            ("InlineHost::turn", inline.turn() == 0),
            ("InlineHost::register", inline.register(64, permissions).is_err_and(of_host)),
        ];
        portal.disarm();
        let transfer = executor.read(grant, 0, region, 64, 64);
        refusals.push((
            "Transfers::read",
            matches!(transfer, Err(TransferError::Unfinished(WaitError::Forked(Forked)))),
        ));
        let waited = executor.wait_any();
        refusals.push(("Transfers::wait_any", waited == Err(WaitError::Forked(Forked))));
        let awaited = client.block_on(async {});
        refusals.push(("Client::block_on", awaited == Err(WaitError::Forked(Forked))));
        let received = (receiver.try_recv().is_none(), receiver.posted());
        refusals.push(("Receiver::try_recv", received == (true, 0)));
        let idle = (client.poll(), client.calls(), client.waiting());
        refusals.push(("Client::poll", idle == (0, 0, 0)));
        let cq = verbs.create_cq(4);
        let waited = verbs.wait_cq(cq, &mut [Wc::EMPTY]);
        refusals.push(("StarVerbs::wait_cq", waited == Err(WaitError::Forked(Forked))));
        refusals.extend(self.futures.refusals());
        refusals.extend(self.keys.refusals());
        refusals
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut made = Made::new(&args).expect("hosts can be opened");
    assert_eq!(made.read(), Ok(OpStatus::Ok), "before the fork");
    // SAFETY: the child calls nothing that another thread of this process may have locked but for
    // the allocator, which the C library makes usable in a child; and it never returns from here.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it has no other effect than a signal to this process later.
        unsafe { libc::alarm(PATIENCE_S) };
        let accepted: Vec<&str> = made
            .refusals()
            .into_iter()
            .filter(|(_, refused)| !refused)
            .map(|(what, _)| what)
            .collect();
        drop(made);
        if !accepted.is_empty() {
            eprintln!("not refused in a child: {accepted:?}");
        }
        exit(i32::from(!accepted.is_empty()));
    }
    let mut status = 0;
    let mut has_ended = false;
    let mut ops = 0;
    while ops < OPS || !has_ended {
        if let Err(why) = made.read().and_then(|status| match status {
            OpStatus::Ok | OpStatus::Timeout => Ok(()),
            other => Err(format!("an op ended with {other}")),
        }) {
            eprintln!("the parent: {why}");
            return ExitCode::FAILURE;
        }
        ops += 1;
        if !has_ended {
            // SAFETY: the pointer is to a local.
            has_ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child;
        }
    }
    if !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) != 0 {
        eprintln!("the child ended with status {status:#x}");
        return ExitCode::FAILURE;
    }
    let is_up =
        made.host.metrics().engines_are_up() && made.host.register(64, Permissions::READ).is_ok();
    println!("{ops} ops, metrics at {}", made.metrics.address());
    if is_up { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
