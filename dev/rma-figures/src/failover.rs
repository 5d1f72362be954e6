//! A service with two replicas, of which one is killed and started again: a thousand tasks, what
//! they get done in each tenth of a second, and how long any of them waits.
//!
//! The servers are processes of their own (`replica`), each in a network namespace; the client's
//! tasks, executor and inline engine share a thread. The killed server comes back with new keys,
//! and the tasks get its new grant as soon as it has been written, as a service would hand it over.

mod network;
mod replica;
mod tasks;
mod timeline;

use core::time::Duration;

use clap::Args;
use rma_bench::{aead, error::PairError, interrupt::Interrupt, line};

use self::{
    network::{Network, Server},
    tasks::{Run, Tasks},
};
pub use self::{
    replica::{ReplicaArgs, ReplicaError, replica},
    tasks::TASKS,
    timeline::{Failover, Tick, Times},
};

/// Arguments of `failover`.
#[derive(Args, Clone, Debug)]
pub struct FailoverArgs {
    /// Use kernel UDP sockets instead of AF_XDP.
    #[arg(long)]
    pub udp: bool,
}

/// Before anything counts: windows open.
const WARM: Duration = Duration::from_millis(700);

/// From then on until the server is killed, until it is started again, and from its return to the
/// end.
const BEFORE: Duration = Duration::from_millis(1500);
const GONE: Duration = Duration::from_millis(2000);
const AFTER: Duration = Duration::from_millis(2000);

/// A server that needs longer to start is stuck.
const START_MAX: Duration = Duration::from_secs(20);

/// Runs it and shows the timeline.
///
/// # Errors
/// If something could not be set up; on Ctrl-C.
pub fn failover(args: &FailoverArgs, interrupt: &Interrupt) -> Result<(), PairError> {
    let device = if args.udp { "UDP" } else { "AF_XDP" };
    line!("  two servers and {TASKS} tasks over {device}, {}", aead::words());
    line!("{}", run(args.udp, interrupt)?);
    Ok(())
}

/// Kills one of two servers under a thousand tasks, and starts it again.
///
/// # Errors
/// If something could not be set up; if a server does not start; on Ctrl-C.
pub fn run(udp: bool, interrupt: &Interrupt) -> Result<Failover, PairError> {
    let network = Network::new(udp)?;
    let mut first = Server::start(&network, 0)?;
    let mut second = Server::start(&network, 1)?;
    let mut tasks = Tasks::new(network.client()?)?;
    let mut run = Run::new(&mut tasks, interrupt);
    for (number, server) in [&first, &second].into_iter().enumerate() {
        run.until_granted(number, server, START_MAX)?;
    }
    run.begin();
    run.run_for(WARM + BEFORE)?;
    let killed = run.note_killed();
    first.kill()?;
    run.run_for(GONE)?;
    first.reap()?;
    let started = run.now();
    first = Server::start(&network, 0)?;
    run.until_granted(0, &first, START_MAX)?;
    let returned = run.now();
    run.run_for(AFTER)?;
    let ended = run.now();
    let failover = run.end(Times { from: WARM, killed, started, returned, ended });
    for server in [&mut first, &mut second] {
        server.kill()?;
        server.reap()?;
    }
    Ok(failover)
}
