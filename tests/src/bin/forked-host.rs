//! Forks after it has opened hosts, and goes on in parent and child: for the test of what each of
//! them may do then.
//!
//! `forked-host udp`, or `forked-host INTERFACE ADDRESS STATE_DIR` over AF_XDP. In the child every
//! call has to be refused at once, and all is dropped; the parent issues ops meanwhile. It ends
//! with 0 if all is well, and says otherwise what is not. A child that waits is killed.

use core::time::Duration;
use std::process::{ExitCode, exit};

use rma_star::library::Wc;
use rma_xdp::{
    Client, CounterConfig, Executor, Forked, Grant, Host, HostConfig, HostError, InlineHost,
    MetricsEndpoint, OpStatus, OpType, Permissions, Portal, ReceiveQueueLayout, RegisteredRegion,
    SubmitError, TransferError, WaitError,
    star::{StarConfigBuilder, StarPortalConfig, StarVerbs},
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
    executor: Executor,
    client: Client,
    verbs: StarVerbs,
    inline: InlineHost,
    metrics: MetricsEndpoint,
}

impl Made {
    fn new(args: &[String]) -> Result<Self, HostError> {
        let host = Host::open(config(args))?;
        let address = host.addresses().iter().next().expect("it has one");
        let region = host.register(4096, Permissions::READ)?;
        // A host may read from itself.
        let grant = host.grant(&region, address, host.pid(), OpType::Read)?;
        let portal = host.portal(4)?;
        let executor = host.executor(4)?;
        let client = Client::start(host.executor(4)?)?;
        let verbs = host.verbs(StarPortalConfig::default())?;
        let inline = InlineHost::open(HostConfig::udp([127, 0, 0, 204]))?;
        let metrics =
            MetricsEndpoint::start(([127, 0, 0, 1], 0).into(), host.metrics_source().clone());
        let metrics = metrics.expect("a port of loopback is free");
        Ok(Self { host, region, grant, portal, executor, client, verbs, inline, metrics })
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
        let Self { host, region, grant, portal, executor, client, verbs, inline, .. } = self;
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
            ("Host::executor", host.executor(1).is_err_and(of_host)),
            (
                "Host::grant",
                host.grant(region, grant.initiator, grant.pid, OpType::Read).is_err_and(of_host),
            ),
            ("Host::resolve", host.resolve(grant.responder).is_err_and(of_host)),
            (
                "Host::receive_queue",
                host.receive_queue(None, layout, Permissions::SEND).is_err_and(of_host),
            ),
            ("Host::fallbacks", host.fallbacks() == [Forked.to_string()]),
            ("Host::metrics", !host.metrics().engine_up),
            ("InlineHost::turn", inline.turn() == 0),
            ("InlineHost::register", inline.register(64, permissions).is_err_and(of_host)),
        ];
        portal.disarm();
        let transfer = executor.read(grant, 0, region, 64, 64);
        refusals.push((
            "Executor::read",
            matches!(transfer, Err(TransferError::Unfinished(WaitError::Forked(Forked)))),
        ));
        let waited = executor.wait_any();
        refusals.push(("Executor::wait_any", waited == Err(WaitError::Forked(Forked))));
        let awaited = client.block_on(async {});
        refusals.push(("Client::block_on", awaited == Err(WaitError::Forked(Forked))));
        let cq = verbs.create_cq(4);
        let waited = verbs.wait_cq(cq, &mut [Wc::EMPTY]);
        refusals.push(("StarVerbs::wait_cq", waited == Err(WaitError::Forked(Forked))));
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
    let is_up = made.host.metrics().engine_up && made.host.register(64, Permissions::READ).is_ok();
    println!("{ops} ops, metrics at {}", made.metrics.address());
    if is_up { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
