//! The thread that knows what the ways of a host over kernel sockets carry, and whether its
//! addresses are there.
//!
//! The kernel routes and resolves by itself. What it does not tell an unconnected socket is how
//! long a packet may be on the way to one host, so this thread asks with sockets of its own: for
//! hosts that the application names, and for those that something was too long for. Where the
//! kernel knows nothing, losses do: [`crate::device::search`]. What carries less than the device is
//! in a [`PathTable`](crate::device::paths::PathTable), which the engine reads. News of links,
//! addresses and routes wake the thread; what they say is asked for.
//!
//! It is a control thread: it allocates and makes system calls. It lives in the network namespace
//! that the host was opened in.
//!
//! Invariant: the thread ends before the drop of its [`Keeper`] returns.

use core::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    time::Duration,
};
use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        mpsc::{self, Receiver, SyncSender},
    },
};

use rma_core::addr::{HostAddr, LocalAddresses};
use rma_shm::Worker;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink, recv,
        socket_with,
    },
};

use crate::device::{
    address,
    monotonic::monotonic,
    paths::{DESTINATIONS_MAX, Loss, Path, PathWriter, REQUESTS_AT_ONCE, Waker, packet_len},
    search::{Finding, Lost, Search},
    ways::{NarrowPath, Ways},
};

/// How often what is known is asked for again without any news: the kernel tells nobody what a
/// router told it, nor when it forgets that.
const REFRESH: Duration = Duration::from_secs(5);

/// The least pause between two such times, so that a route that comes and goes elsewhere does not
/// keep the thread busy. Longer: what has changed is seen later.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a way stays that nobody asks for any longer.
const IDLE: Duration = Duration::from_secs(300);

/// Questions that may wait for the thread. Beyond them nobody waits: what is asked for is found out
/// when something is too long.
const QUESTIONS_MAX: usize = 64;

/// How long an answer is waited for.
const ANSWER: Duration = Duration::from_secs(1);

/// The MTUs of the devices that have a host's addresses: of IPv4, of IPv6.
#[derive(Debug)]
pub(super) struct DeviceMtus([AtomicU32; 2]);

impl DeviceMtus {
    pub(super) fn new(of: impl Fn(bool) -> u32) -> Self {
        Self([of(true).into(), of(false).into()])
    }

    pub(super) fn of(&self, is_ipv4: bool) -> u32 {
        self.0[usize::from(!is_ipv4)].load(Relaxed)
    }

    fn set(&self, is_ipv4: bool, mtu: u32) {
        self.0[usize::from(!is_ipv4)].store(mtu, Relaxed);
    }
}

/// The start of the thread.
#[derive(Debug)]
pub(super) struct Seed {
    pub(super) writer: PathWriter,
    pub(super) waker: Arc<Waker>,
    pub(super) mtus: Arc<DeviceMtus>,
    pub(super) addresses: LocalAddresses,
    /// Whether the MTU was configured: then no device changes it.
    pub(super) is_fixed: bool,
}

/// A question about the way to a host, and whom to tell that it was asked.
type Question = (HostAddr, SyncSender<()>);

/// The thread's handle.
#[derive(Debug)]
pub(crate) struct Keeper {
    ways: Arc<Ways>,
    waker: Arc<Waker>,
    stop: Arc<AtomicBool>,
    questions: SyncSender<Question>,
    thread: Option<Worker>,
}

impl Keeper {
    /// Starts the thread in the calling thread's network namespace.
    pub(super) fn start(seed: Seed) -> io::Result<Self> {
        let ways: Arc<Ways> = Arc::default();
        let (waker, stop) = (Arc::clone(&seed.waker), Arc::<AtomicBool>::default());
        let (questions, inbox) = mpsc::sync_channel(QUESTIONS_MAX);
        let body = Thread {
            seed,
            ways: Arc::clone(&ways),
            stop: Arc::clone(&stop),
            inbox,
            // Without it, a change is seen a little later.
            news: news().ok(),
            asked: BTreeMap::new(),
            search: Search::default(),
        };
        let thread = Worker::start("rma-ways", move || body.run())?;
        Ok(Self { ways, waker, stop, questions, thread: Some(thread) })
    }

    /// Returns the known ways.
    pub(crate) fn ways(&self) -> &Arc<Ways> {
        &self.ways
    }

    /// Has the kernel asked what the way to `peer` carries. Waits for the answer a little.
    pub(crate) fn resolve(&self, peer: HostAddr) {
        if let Some(answer) = self.ask(peer) {
            // None: the thread is busy, and will come to it.
            let _ = answer.recv_timeout(ANSWER);
        }
    }

    /// The same without waiting.
    pub(crate) fn prepare(&self, peer: HostAddr) {
        let _ = self.ask(peer);
    }

    fn ask(&self, peer: HostAddr) -> Option<Receiver<()>> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.questions.try_send((peer, reply)).ok()?;
        self.waker.wake();
        Some(answer)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.is_ours()
        {
            self.stop.store(true, Relaxed);
            self.waker.wake();
            thread.join();
        }
    }
}

/// The state of the way to a host.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// The MTU of the way by the kernel's word.
    mtu: u32,
    wanted_at: Duration,
}

/// When all is asked for again.
#[derive(Debug)]
struct Refreshes {
    at: Duration,
    not_before: Duration,
}

impl Refreshes {
    /// Something has changed: as soon as may be.
    fn hurry(&mut self) {
        self.at = self.at.min(self.not_before);
    }

    /// Whether it is due. Then that counts as done.
    fn is_due(&mut self, now: Duration) -> bool {
        let is_due = now >= self.at;
        if is_due {
            (self.at, self.not_before) = (now + REFRESH, now + PAUSE);
        }
        is_due
    }
}

struct Thread {
    seed: Seed,
    ways: Arc<Ways>,
    stop: Arc<AtomicBool>,
    inbox: Receiver<Question>,
    news: Option<OwnedFd>,
    asked: BTreeMap<HostAddr, Asked>,
    search: Search,
}

impl Thread {
    fn run(mut self) {
        let mut refreshes = Refreshes { at: Duration::ZERO, not_before: Duration::ZERO };
        while !self.stop.load(Relaxed) {
            // Before the queues are looked at: what is queued later signals again.
            self.seed.waker.clear();
            let now = monotonic();
            if self.has_news() {
                refreshes.hurry();
            }
            if refreshes.is_due(now) {
                self.refresh(now);
            }
            for (peer, reply) in self.inbox.try_iter().take(QUESTIONS_MAX).collect::<Vec<_>>() {
                self.want(peer, now);
                // The caller may have gone away.
                let _ = reply.send(());
            }
            for _ in 0..REQUESTS_AT_ONCE {
                let Some((_, peer)) = self.seed.writer.poll_request() else { break };
                self.want(peer, now);
            }
            self.handle_losses(now);
            self.look(now);
            let search = self.search.poll_timeout(now);
            self.sleep(search.map_or(refreshes.at, |due| due.min(refreshes.at)));
        }
        // Nobody follows any longer, so nothing may be promised.
        for peer in self.asked.keys() {
            self.seed.writer.remove(*peer);
        }
    }

    /// Whether the kernel has told anything. What it was is asked for, all of it.
    fn has_news(&self) -> bool {
        let Some(news) = &self.news else { return false };
        let mut any = false;
        loop {
            // A longer message is cut off: nobody reads it.
            match recv(news, &mut [0_u8; 64][..], RecvFlags::empty()) {
                Ok(_) | Err(Errno::NOBUFS) => any = true,
                Err(Errno::INTR) => {}
                Err(_) => return any,
            }
        }
    }

    fn refresh(&mut self, now: Duration) {
        for address in self.seed.addresses.iter() {
            // An address that cannot be asked about stays as it was.
            let Ok(is_there) = address::is_usable(address, None) else { continue };
            self.ways.tell_address(address, is_there, None);
            if is_there && !self.seed.is_fixed {
                self.follow_device(address);
            }
        }
        for (peer, Asked { wanted_at, .. }) in self.asked.clone() {
            if self.seed.writer.take_used(peer) {
                self.want(peer, now);
            } else if now.saturating_sub(wanted_at) >= IDLE {
                self.forget(peer);
            } else {
                self.ask(peer, wanted_at);
            }
        }
    }

    fn follow_device(&self, address: HostAddr) {
        let (is_ipv4, mtus) = (address.is_ipv4(), &self.seed.mtus);
        if let Some(mtu) = address::device_mtu(address)
            && mtu != mtus.of(is_ipv4)
        {
            tracing::info!(%address, mtu, "the MTU of the device that has the address has changed");
            mtus.set(is_ipv4, mtu);
        }
    }

    fn want(&mut self, peer: HostAddr, now: Duration) {
        if self.asked.contains_key(&peer) || self.asked.len() < DESTINATIONS_MAX {
            self.ask(peer, now);
        }
    }

    /// Asks the kernel what the way to `peer` carries.
    fn ask(&mut self, peer: HostAddr, wanted_at: Duration) {
        let Some(own) = self.seed.addresses.toward(peer) else { return };
        let device = self.device_mtu(peer);
        let mtu = address::path_mtu(own, peer).map_or(device, |mtu| mtu.min(device));
        self.asked.insert(peer, Asked { mtu, wanted_at });
        self.publish(peer);
    }

    fn handle_losses(&mut self, now: Duration) {
        while let Some(Loss { peer, len }) = self.seed.writer.poll_loss() {
            if !self.asked.contains_key(&peer) {
                self.want(peer, now);
            }
            let Some(&Asked { mtu: full, .. }) = self.asked.get(&peer) else { continue };
            let heard = packet_len(peer, self.seed.writer.take_heard(peer));
            let lost = Lost { len: packet_len(peer, len), heard, full };
            let finding = self.search.lost(peer, lost, now);
            self.found(peer, finding);
        }
    }

    fn look(&mut self, now: Duration) {
        for peer in self.search.watched() {
            let heard = packet_len(peer, self.seed.writer.take_heard(peer));
            let finding = self.search.heard(peer, heard, now);
            self.found(peer, finding);
        }
        for peer in self.search.handle_timeout(now) {
            self.publish(peer);
        }
    }

    fn found(&mut self, peer: HostAddr, finding: Option<Finding>) {
        if let Some(finding) = finding {
            self.ways.found(peer, finding, self.device_mtu(peer));
        }
        self.publish(peer);
    }

    /// Returns the MTU of the device that frames to `peer` leave by.
    fn device_mtu(&self, peer: HostAddr) -> u32 {
        self.seed.mtus.of(peer.is_ipv4())
    }

    /// Tells engine and people how long packets to `peer` may be, if that is less than the device's
    /// or it should be heard of it.
    fn publish(&mut self, peer: HostAddr) {
        let device_mtu = self.device_mtu(peer);
        let asked = self.asked.get(&peer).map_or(device_mtu, |asked| asked.mtu);
        let mtu = self.search.limit(peer).unwrap_or(device_mtu).min(asked).min(device_mtu);
        // Of a way that nobody uses any longer nothing is told, whatever is remembered of it.
        let is_asked = self.asked.contains_key(&peer);
        let known = self.search.known(peer).filter(|_| is_asked);
        let known = known.map_or(asked, |known| known.min(asked));
        let narrow = NarrowPath { peer, mtu: known, device_mtu };
        // Loopback's MTU is longer than any packet, which makes no way over it a narrow one.
        let is_narrow = known < device_mtu.min(u16::MAX.into());
        self.ways.set_narrow(peer, is_narrow.then_some(narrow));
        let is_told = mtu < device_mtu || self.search.has(peer);
        if is_told && is_asked {
            let path = Path { source_mac: [0; 6], next_hop_mac: [0; 6], mtu };
            if let Err(full) = self.seed.writer.insert(peer, path) {
                tracing::warn!(%peer, mtu, %full, "the engine is not told what this way carries");
            }
        } else {
            self.seed.writer.remove(peer);
        }
        self.seed.writer.set_watching(!self.search.is_empty() || self.ways.has_narrow());
    }

    fn forget(&mut self, peer: HostAddr) {
        self.asked.remove(&peer);
        self.ways.set_narrow(peer, None);
        self.seed.writer.remove(peer);
    }

    fn sleep(&self, until: Duration) {
        let left = until.saturating_sub(monotonic());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let waker = PollFd::from_borrowed_fd(self.seed.waker.as_fd(), PollFlags::IN);
        let news = self.news.as_ref();
        let news = news.map(|news| PollFd::from_borrowed_fd(news.as_fd(), PollFlags::IN));
        let mut sources: Vec<PollFd<'_>> = [Some(waker), news].into_iter().flatten().collect();
        // Whatever ends the sleep, the loop looks at everything again.
        let _ = poll(&mut sources, Some(&timeout));
    }
}

/// A socket that becomes readable when a link, an address or a route has changed.
fn news() -> io::Result<OwnedFd> {
    /// Multicast groups by number, `RTNLGRP_*`: link, then address and route of IPv4 and of IPv6.
    const GROUPS: [u32; 5] = [1, 5, 7, 9, 11];
    let mask = GROUPS.iter().fold(0, |mask, group| mask | 1 << (group - 1));
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // No protocol means NETLINK_ROUTE, which is number 0.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, mask))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::paths::PathTable;

    /// A host that does not answer, at `number`.
    fn silent(number: usize) -> HostAddr {
        [127, 1, (number >> 8) as u8, number as u8].into()
    }

    #[test]
    fn a_way_that_is_forgotten_takes_no_place_of_one_that_is_asked_for() {
        let waker = Arc::new(Waker::new().unwrap());
        let (table, writer) = PathTable::with_waker(0, Some(Arc::clone(&waker)));
        let mut thread = Thread {
            seed: Seed {
                writer,
                waker,
                // Wider than any way, so that each is told.
                mtus: Arc::new(DeviceMtus::new(|_| 1 << 20)),
                addresses: HostAddr::from([127, 0, 0, 1]).into(),
                is_fixed: true,
            },
            ways: Arc::default(),
            stop: Arc::default(),
            inbox: mpsc::sync_channel(1).1,
            news: None,
            asked: BTreeMap::new(),
            search: Search::default(),
        };
        let forgotten = silent(0);
        thread.want(forgotten, Duration::ZERO);
        let lost = Lost { len: 1500, heard: 0, full: 1500 };
        assert_eq!(thread.search.lost(forgotten, lost, Duration::ZERO), None);
        thread.forget(forgotten);
        (1..=DESTINATIONS_MAX).for_each(|number| thread.want(silent(number), Duration::ZERO));
        thread.found(forgotten, None);
        assert!(table.lookup(forgotten).is_none());
        assert!((1..=DESTINATIONS_MAX).all(|it| table.lookup(silent(it)).is_some()));
    }

    #[test]
    fn news_without_end_have_all_asked_for_once_in_a_pause() {
        let mut refreshes = Refreshes { at: Duration::ZERO, not_before: Duration::ZERO };
        let (news, length) = (Duration::from_micros(100), Duration::from_secs(1));
        let times = (0..).map(|number| news * number).take_while(|it| *it < length);
        let asked = times.filter(|now| {
            refreshes.hurry();
            refreshes.is_due(*now)
        });
        assert_eq!(asked.count(), 10);
        // What came in the pause is not forgotten, and without news it is as it was.
        refreshes.hurry();
        assert_eq!(refreshes.at, length);
        assert!(refreshes.is_due(length) && !refreshes.is_due(length + PAUSE));
        assert!(refreshes.is_due(length + REFRESH));
    }
}
