//! The thread that keeps the path table true, and the handle that owns it.
//!
//! The thread sleeps until the kernel has news, somebody asks, or something is due; what it then
//! does is in `resolver`. It is a control thread: it allocates and makes system calls, and it must
//! not be pinned to an engine's core.
//!
//! Invariant: the thread ends before the handle's drop returns, and the table is empty from then
//! on.

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError},
    },
    time::Duration,
};

use rma_core::addr::{HostAddr, LocalAddresses};
use rma_shm::Worker;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::AsFd,
};

use super::{
    error::{NetError, PathError},
    interface::Interface,
    netlink::{Link, News, NewsSocket, Questions},
    resolver::{Reply, Resolver},
};
use crate::device::{
    monotonic::monotonic,
    paths::{Path, PathTable, Waker},
    ways::Ways,
};

/// How much longer than its own timeout a caller waits for the thread's answer: the thread may be
/// busy with others' questions.
const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// How many commands may wait for the thread. A caller that wants an answer waits for a place;
/// [`NetMonitor::prepare`] does not.
const COMMANDS_MAX: usize = 256;

/// After how long somebody who waits for a place looks again.
const PLACE_RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A command of the handle to its thread.
#[derive(Debug)]
enum Command {
    Resolve { destination: HostAddr, deadline: Duration, reply: Reply<Path> },
    Prepare { destination: HostAddr },
    CheckSource { source: HostAddr, reply: Reply<()> },
    Sources { addresses: LocalAddresses },
    Stop,
}

/// Follows the kernel's routes, neighbours and link state for one interface.
///
/// Engines read [`NetMonitor::table`]; control code asks [`NetMonitor::resolve`]. Needs
/// `CAP_NET_ADMIN` in the network namespace to have neighbours resolved.
#[derive(Debug)]
pub struct NetMonitor {
    interface: Interface,
    table: Arc<PathTable>,
    waker: Arc<Waker>,
    ways: Arc<Ways>,
    commands: SyncSender<Command>,
    thread: Option<Worker>,
}

impl NetMonitor {
    /// Starts to follow `interface`, in the calling thread's network namespace and with the calling
    /// thread's CPU affinity: start it before the thread is pinned.
    ///
    /// # Errors
    /// Those of [`Interface::open`], and [`NetError::Thread`] if no thread could be started.
    pub fn start(interface: &str) -> Result<Self, NetError> {
        let kernel = |doing, source| NetError::Kernel { doing, name: interface.into(), source };
        // News first: whatever changes after the first questions is then noticed.
        let news = NewsSocket::open().map_err(|e| kernel("subscribing to netlink news", e))?;
        let mut questions = Questions::open().map_err(|e| kernel("opening a netlink socket", e))?;
        let waker = Waker::new().map_err(|e| kernel("making an event descriptor", e.into()))?;
        let waker = Arc::new(waker);
        let facts = Interface::ask(&mut questions, interface)?;
        let (table, writer) = PathTable::with_waker(facts.mtu, Some(Arc::clone(&waker)));
        let link = Link {
            index: facts.index,
            name: facts.name.clone(),
            mac: Some(facts.mac),
            mtu: facts.mtu,
            up: facts.is_up,
            running: facts.is_running,
            rx_queues: facts.rx_queues,
            in_vrf: facts.in_vrf,
        };
        let (commands, inbox) = mpsc::sync_channel(COMMANDS_MAX);
        let ways: Arc<Ways> = Arc::default();
        let thread = Thread {
            resolver: Resolver::new(questions, interface, link, writer, ways.clone()),
            news,
            inbox,
            waker: Arc::clone(&waker),
        };
        let thread = Worker::start("rma-net", move || thread.run())
            .map_err(|source| NetError::Thread { name: interface.into(), source })?;
        Ok(Self { interface: facts, table, waker, ways, commands, thread: Some(thread) })
    }

    /// The table that engines read.
    #[must_use]
    pub fn table(&self) -> Arc<PathTable> {
        Arc::clone(&self.table)
    }

    /// Says from which addresses frames are sent: routes are asked for with these, as the kernel
    /// asks for its own sockets', and it is told when one of them goes, or comes back.
    pub fn send_from(&self, addresses: LocalAddresses) {
        // Waits for a place, of which there are many. Fails if the thread is gone.
        let _ = self.commands.send(Command::Sources { addresses });
        self.waker.wake();
    }

    /// Returns the ways that carry less than the interface, by the kernel's word or after losses.
    pub(crate) fn ways(&self) -> &Arc<Ways> {
        &self.ways
    }

    /// The interface as it was at the start. MTU and link state are followed by the table.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The path to `destination`, which the table then holds as well. Waits up to `timeout` for a
    /// neighbour that has not answered yet; the kernel gives up by itself after some three seconds.
    ///
    /// # Errors
    /// Each cause has its own variant of [`PathError`].
    pub fn resolve(&self, destination: HostAddr, timeout: Duration) -> Result<Path, PathError> {
        let deadline = monotonic().saturating_add(timeout);
        self.ask(timeout, |reply| Command::Resolve { destination, deadline, reply })
    }

    /// Has the path to `destination` looked for, without waiting: some of its frames may be
    /// answered before it has proved who it is, and for those nobody looks (see
    /// [`PathTable::request`]).
    ///
    /// It is a favour and no promise. Nothing is looked for while half of the table is taken, so
    /// that hosts that may never come leave room for those that are there, or while too many others
    /// are asked for at once. A path that nobody uses is forgotten as any other: after five
    /// minutes, or ten seconds if the neighbour does not answer.
    pub fn prepare(&self, destination: HostAddr) {
        // Full, or the thread is gone: then there is nothing to be done.
        let _ = self.commands.try_send(Command::Prepare { destination });
        self.waker.wake();
    }

    /// Checks that `source` is an address of this host, on any of its interfaces: a peer's answer
    /// could not come back to another.
    ///
    /// # Errors
    /// [`PathError::SourceNotLocal`] if it is not.
    pub fn check_source(&self, source: HostAddr) -> Result<(), PathError> {
        self.ask(Duration::ZERO, |reply| Command::CheckSource { source, reply })
    }

    fn ask<T>(
        &self,
        timeout: Duration,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, PathError> {
        let (reply, answer) = mpsc::sync_channel(1);
        let stopped = || PathError::Stopped { interface: self.interface.name.clone() };
        if self.thread.as_ref().is_none_or(|it| !it.is_ours()) {
            return Err(stopped());
        }
        let deadline = monotonic().saturating_add(timeout).saturating_add(ANSWER_GRACE);
        send_until(&self.commands, command(reply), deadline).ok_or_else(stopped)?;
        self.waker.wake();
        answer.recv_timeout(deadline.saturating_sub(monotonic())).unwrap_or_else(
            |gone| match gone {
                RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected => Err(stopped()),
            },
        )
    }
}

/// Sends once there is a place; `None` if there is none by `deadline`, or nobody receives any
/// longer.
fn send_until<T>(commands: &SyncSender<T>, mut command: T, deadline: Duration) -> Option<()> {
    loop {
        match commands.try_send(command) {
            Ok(()) => return Some(()),
            Err(TrySendError::Full(back)) if monotonic() < deadline => command = back,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return None,
        }
        // A sleep: there is nothing to poll.
        let _ = poll(&mut [], Some(&PLACE_RETRY));
    }
}

impl Drop for NetMonitor {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.is_ours()
        {
            // Fails if the thread is gone already.
            let _ = self.commands.send(Command::Stop);
            self.waker.wake();
            thread.join();
        }
    }
}

/// The state of the thread.
struct Thread {
    resolver: Resolver<Questions>,
    news: NewsSocket,
    inbox: Receiver<Command>,
    waker: Arc<Waker>,
}

impl Thread {
    fn run(mut self) {
        loop {
            // Before the queues are looked at: what is queued later signals again.
            self.waker.clear();
            let now = monotonic();
            // No more than may have waited when the signal was taken back; for later ones there is
            // another.
            for command in self.inbox.try_iter().take(COMMANDS_MAX) {
                match command {
                    Command::Resolve { destination, deadline, reply } => {
                        self.resolver.resolve(destination, now, deadline, reply);
                    }
                    Command::Prepare { destination } => self.resolver.prepare(destination, now),
                    Command::CheckSource { source, reply } => {
                        answer(&reply, self.resolver.check_source(source));
                    }
                    Command::Sources { addresses } => self.resolver.set_sources(addresses),
                    Command::Stop => return,
                }
            }
            self.resolver.handle_requests(now);
            self.resolver.handle_losses(now);
            if self.read_news(now).is_err() {
                return;
            }
            self.resolver.handle_timeout(now);
            self.sleep();
        }
    }

    /// Fails if there will never be news again.
    fn read_news(&mut self, now: Duration) -> std::io::Result<()> {
        if self.news.read(|news| self.resolver.handle_news(news, now)).is_err() {
            // A socket that failed may stay readable for ever: a new one, and everything afresh.
            self.news = NewsSocket::open()?;
            self.resolver.handle_news(News::Anything, now);
        }
        Ok(())
    }

    fn sleep(&self) {
        let timeout = self.resolver.poll_timeout().map(|due| {
            let left = due.saturating_sub(monotonic());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let mut sources = [
            PollFd::from_borrowed_fd(self.news.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.waker.as_fd(), PollFlags::IN),
        ];
        // Whatever ends the sleep, a signal included, the loop looks at everything again.
        let _ = poll(&mut sources, timeout.as_ref());
    }
}

fn answer<T>(reply: &SyncSender<Result<T, PathError>>, result: Result<T, PathError>) {
    // The caller may have gone away; then nobody needs to know.
    let _ = reply.send(result);
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_caller_without_a_place_in_the_queue_gives_up_in_time() {
        let (commands, inbox) = mpsc::sync_channel(1);
        let soon = || monotonic() + Duration::from_millis(20);
        assert_eq!(send_until(&commands, 1, soon()), Some(()));
        assert_eq!(send_until(&commands, 2, soon()), None, "nobody takes the first");
        let sender = {
            let commands = commands.clone();
            thread::spawn(move || send_until(&commands, 3, monotonic() + Duration::from_secs(60)))
        };
        assert_eq!((inbox.recv(), inbox.recv()), (Ok(1), Ok(3)));
        assert_eq!(sender.join().unwrap(), Some(()));
        drop(inbox);
        let far = monotonic() + Duration::from_secs(60);
        assert_eq!(send_until(&commands, 4, far), None, "nobody will");
    }
}
