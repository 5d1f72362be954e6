//! A portal whose application is another process: the engine here, and all that joins the two is
//! memory that both have mapped and two eventfds.
//!
//! The other process is this test again. It finds a socket as its standard input, and gets the
//! descriptors through it, as a daemon would pass them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::{mem::MaybeUninit, ops::Range, time::Duration};
use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use rma_core::{
    addr::{HostAddr, Pid},
    backend::{Backend, RxPacket, TxFrame},
    crypto::{KeyBinding, RegionKey, RegionKeySchedule},
    engine::Engine,
    grant::Grant,
    nic::{Nic, NicConfigBuilder, NicPlace, RegionEntry},
    one_rma::OneRma,
    op::{OpStatus, OpType},
    portal::{
        Bell, CommandPortal, Flag, FlagLender, PortalConfig, PortalMemory, PortalPort, Wake, portal,
    },
    region::{NicTag, Permissions, RegionId, RegisteredRegion},
    time::{Clock, Instant},
    wire::FRAME_LEN_MAX,
};
use rma_shm::{Doorbell, Flags, LayoutError, Mapping, MemoryError, Region};
use rustix::{
    cmsg_space,
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    fs::{MemfdFlags, SealFlags},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
    time::{ClockId, Timespec, clock_gettime},
};

const ADDR: [u8; 4] = [192, 0, 2, 1];
const PID: Pid = Pid(4_200_000);
const KEY: [u8; 16] = [0x1a; 16];
const NIC: NicTag = NicTag(1);

/// Slots of the other process: its portal has more entries than that.
const SLOTS: Range<u16> = 2..5;
/// Slots of an application of this process beside it.
const NEIGHBOUR: Range<u16> = 0..2;
const COUNT: u16 = SLOTS.end - SLOTS.start;

/// The index of the other process's portal's flag in its word.
const FLAG: u32 = 41;

/// Of the region: what is read lies in the first half, and lands in the second.
const LEN: usize = 8192;
const HALF: u64 = LEN as u64 / 2;
const OP_SIZE: u32 = 1000;

/// Nobody sleeps for as long unless a wake-up is lost.
const LONG: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// An eventfd that may have come from another process.
#[derive(Debug)]
struct Event(OwnedFd);

impl Event {
    fn new() -> Self {
        Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap())
    }

    fn drain(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl Wake for Event {
    fn wake(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

struct KernelClock;

impl Clock for KernelClock {
    fn now(&self) -> Instant {
        let now = clock_gettime(ClockId::Monotonic);
        Instant::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }
}

/// A device that nothing comes from: whoever reads from its own host needs none.
struct NoDevice;

impl Backend for NoDevice {
    fn rx_burst(&mut self, _: usize, _: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        0
    }

    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        let mut out = vec![[0; FRAME_LEN_MAX]; max];
        let mut frames: Vec<_> = out.iter_mut().map(|bytes| TxFrame::new(bytes)).collect();
        fill(&mut frames)
    }

    fn flush(&mut self, _: Instant) {}
}

fn address() -> HostAddr {
    ADDR.into()
}

/// The permission to read all of a region of this host.
fn grant(region: RegionId) -> Grant {
    let (initiator, responder, pid, op_type) = (address(), address(), PID, OpType::Read);
    let binding = KeyBinding { initiator, responder, pid, op_type };
    let key = RegionKeySchedule::new(&RegionKey::from_bytes(KEY)).derive(&binding);
    Grant { responder, region, region_len: LEN as u64, initiator, pid, op_type, key }
}

fn config(slots: Range<u16>, bell: Option<Bell>, flag: Option<Flag>) -> PortalConfig {
    PortalConfig { slots, pid: PID, addresses: address().into(), bell, flag, nic: NIC }
}

/// An engine, and a portal of this process.
struct Host {
    engine: Engine<NoDevice, KernelClock, OneRma>,
    neighbour: CommandPortal,
    region: RegisteredRegion,
    grant: Grant,
}

impl Host {
    /// Serves `port` beside the neighbour's.
    fn new(port: PortalPort) -> Self {
        let settings = NicConfigBuilder::default();
        let mut nic = Nic::new(settings.build(NicPlace::at(address())).unwrap());
        let memory = Arc::new(Region::memfd("rma-test-region", LEN).unwrap());
        let bytes: Vec<u8> = (0..HALF).map(|at| (at * 7) as u8).collect();
        memory.copy_in(0, &bytes).unwrap();
        let key = RegionKey::from_bytes(KEY);
        let entry = RegionEntry::new(memory.clone(), &key, Permissions::READ, PID);
        let id = nic.regions_mut().register(Box::new(entry)).unwrap();
        let region = RegisteredRegion::new(id, memory, NIC);
        nic.configure_slots(NEIGHBOUR.start..SLOTS.end, Some(PID));
        let mut service = OneRma::new(nic);
        let (neighbour, its_port) = portal(config(NEIGHBOUR, None, Some(FlagLender::new().lend())));
        service.attach(its_port);
        service.attach(port);
        let engine = Engine::new(service, NoDevice, KernelClock);
        Self { engine, neighbour, region, grant: grant(id) }
    }

    /// Turns until an op of the neighbour's has completed.
    fn serve_neighbour(&mut self) {
        let Self { engine, neighbour, region, grant } = self;
        let (offset, begun) = (HALF + 2048, engine.clock().now());
        let slot = neighbour.read(grant, 0, region, offset, OP_SIZE).unwrap();
        let completion = loop {
            engine.turn();
            match neighbour.poll() {
                Some(completion) => break completion,
                None => assert!(engine.clock().now().since(begun) < Duration::from_secs(20)),
            }
        };
        assert_eq!((completion.slot, completion.status), (slot, OpStatus::Ok));
    }
}

/// Starts `test` again as another process, and gives it these.
fn start(test: &str, text: &str, fds: &[BorrowedFd<'_>]) -> (Child, OwnedFd) {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("RMA_APPLICATION", "1")
        .stdin(theirs)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(5))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)));
    let text = [IoSlice::new(text.as_bytes())];
    sendmsg(&ours, &text, &mut ancillary, SendFlags::empty()).unwrap();
    (child, ours)
}

/// Returns what this process was given, if it is the other one.
fn given() -> Option<(String, Vec<OwnedFd>)> {
    std::env::var_os("RMA_APPLICATION")?;
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(5))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut text = [0; 64];
    let into = &mut [IoSliceMut::new(&mut text)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(std::io::stdin().as_fd(), into, &mut ancillary, flags).unwrap();
    let fds = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let fds = fds.collect();
    Some((String::from_utf8(text[..received.bytes].to_vec()).unwrap(), fds))
}

/// The memory of a portal for the other process, formatted, and what it lies in.
fn shared_portal() -> (Arc<Mapping>, PortalMemory) {
    let mapping = Mapping::memfd("rma-test-portal", PortalMemory::footprint(COUNT)).unwrap();
    let mapping = Arc::new(mapping);
    let memory = PortalMemory::format(&mapping, COUNT).unwrap();
    (mapping, memory)
}

/// A word of flags for the other process, which shares it with this one alone, and its portal's.
fn shared_flag() -> (Arc<Mapping>, Flag) {
    let mapping = Arc::new(Mapping::memfd("rma-test-flags", Flags::FOOTPRINT).unwrap());
    let flags = Flags::at(&mapping, 0).unwrap();
    (mapping, Flag::new(flags, FLAG))
}

/// The application: reads many times, and sleeps whenever there is no completion.
fn application(text: &str, fds: Vec<OwnedFd>) {
    let [portal, region, flags, engine, own] = <[OwnedFd; 5]>::try_from(fds).unwrap();
    let mapping = Mapping::join_of_len(portal, PortalMemory::footprint(COUNT)).unwrap();
    let memory = PortalMemory::join(&Arc::new(mapping), COUNT).unwrap();
    let (engine, own) = (Arc::new(Event(engine)), Event(own));
    let doorbell = memory.application_doorbell().clone();
    let bell = Bell { doorbell: memory.engine_doorbell().clone(), wake: engine };
    let flags = Arc::new(Mapping::join_of_len(flags, Flags::FOOTPRINT).unwrap());
    let flag = Flag::new(Flags::at(&flags, 0).unwrap(), FLAG);
    let mut portal = memory.into_application(config(SLOTS, Some(bell), Some(flag)));
    let id = RegionId::from_bits(text.parse().unwrap());
    let region = Arc::new(Region::map_memfd(region).unwrap());
    let (grant, local) = (grant(id), RegisteredRegion::new(id, region, NIC));
    let mut slept = 0;
    for round in 0..200 {
        let (mut expected, mut found) = ([0; OP_SIZE as usize], [0; OP_SIZE as usize]);
        for piece in 0..u64::from(COUNT) {
            let from = round * 11 + piece * 300;
            portal.read(&grant, from, &local, HALF + piece * 1000, OP_SIZE).unwrap();
        }
        while portal.outstanding() > 0 {
            if let Some(completion) = portal.poll() {
                assert_eq!(completion.status, OpStatus::Ok);
                assert!(SLOTS.contains(&completion.slot.0));
                continue;
            }
            doorbell.prepare_sleep();
            if !portal.has_completion() {
                let mut fds = [PollFd::new(&own.0, PollFlags::IN)];
                assert_eq!(poll(&mut fds, Some(&LONG)), Ok(1), "nobody woke the application");
                slept += 1;
            }
            doorbell.awake();
            own.drain();
        }
        for piece in 0..u64::from(COUNT) {
            local.read(round * 11 + piece * 300, &mut expected).unwrap();
            local.read(HALF + piece * 1000, &mut found).unwrap();
            assert_eq!(found, expected, "round {round}, piece {piece}");
        }
    }
    assert!(slept > 0, "it never had to wait");
}

#[test]
fn another_process_reads_through_its_portal_and_each_side_wakes_the_other() {
    if let Some((text, fds)) = given() {
        return application(&text, fds);
    }
    let (mapping, memory) = shared_portal();
    let (bell, sleeper) = (Event::new(), Arc::new(Event::new()));
    let (application, engine) =
        (memory.application_doorbell().clone(), memory.engine_doorbell().clone());
    let mut port = memory.into_port(SLOTS);
    port.set_sleeper(Bell { doorbell: application, wake: sleeper.clone() });
    port.set_engine_doorbell(engine);
    let (flags, flag) = shared_flag();
    port.set_flag(flag);
    let mut host = Host::new(port);
    let region = host.region.memory().clone();
    let (mut child, socket) = start(
        "portal_in_another_process::another_process_reads_through_its_portal_and_each_side_wakes_the_other",
        &host.grant.region.to_bits().to_string(),
        &[
            mapping.fd().unwrap(),
            region.fd().unwrap(),
            flags.fd().unwrap(),
            bell.0.as_fd(),
            sleeper.0.as_fd(),
        ],
    );
    // That of the applications of this process.
    let (doorbell, mut woken) = (Doorbell::new(), 0);
    loop {
        if host.engine.turn() > 0 {
            continue;
        }
        host.engine.announce_sleep();
        doorbell.prepare_sleep();
        let mut over = false;
        if host.engine.is_idle() {
            let mut fds =
                [PollFd::new(&bell.0, PollFlags::IN), PollFd::new(&socket, PollFlags::IN)];
            assert_ne!(poll(&mut fds, Some(&LONG)), Ok(0), "nobody woke the engine");
            over = !fds[1].revents().is_empty();
            woken += usize::from(!fds[0].revents().is_empty());
            bell.drain();
        }
        doorbell.awake();
        host.engine.awake();
        if over {
            break;
        }
    }
    assert!(child.wait().unwrap().success());
    assert!(woken > 0);
    assert_eq!(host.engine.service().nic().counters().impossible_indexes(), 0);
    assert!(host.engine.service_mut().detach(&SLOTS).is_some(), "all of its ops have completed");
}

/// Writes anything anywhere into its portal's memory, mostly near to what would be right, and into
/// its flags, for as long as the other side of its standard input is there.
fn hostile(fds: Vec<OwnedFd>) {
    let [portal, flags] = <[OwnedFd; 2]>::try_from(fds).unwrap();
    let [mapping, flags] = [portal, flags].map(|fd| Arc::new(Mapping::join(fd).unwrap()));
    let memory = PortalMemory::join(&mapping, COUNT).unwrap();
    let (words, mut random) = (mapping.words(), 0x9e37_79b9_7f4a_7c15_u64);
    loop {
        for _ in 0..10_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let near = (random >> 8 & 7) as u32;
            let flag = [0, !0, random, 1 << FLAG][(random >> 32) as usize & 3];
            flags.words()[0].store(flag, std::sync::atomic::Ordering::Relaxed);
            let ring = if random & 1 == 0 { memory.commands() } else { memory.completions() };
            match random >> 1 & 7 {
                0 | 1 => ring.set_tail(ring.tail().wrapping_add(near).wrapping_sub(3)),
                2 | 3 => ring.set_head(ring.head().wrapping_add(near).wrapping_sub(3)),
                4 => ring.set_head(ring.tail()),
                // Op type READ in the latency class, for a slot that may be its own.
                5 => ring.set_word(near, 0, u64::from(near) | 1 << 16 | (random >> 60) << 32),
                _ => {
                    let word = (random >> 32) as usize % words.len();
                    words[word].store(random, std::sync::atomic::Ordering::Relaxed);
                }
            }
        }
        let (socket, at_once) = (std::io::stdin(), Timespec { tv_sec: 0, tv_nsec: 0 });
        if poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&at_once)) == Ok(1) {
            return;
        }
    }
}

#[test]
fn a_process_that_writes_anything_anywhere_into_its_portal_harms_neither_engine_nor_neighbour() {
    if let Some((_, fds)) = given() {
        return hostile(fds);
    }
    let (mapping, memory) = shared_portal();
    let bell = Arc::new(Event::new());
    let application = memory.application_doorbell().clone();
    let mut port = memory.into_port(SLOTS);
    port.set_sleeper(Bell { doorbell: application, wake: bell });
    let (flags, flag) = shared_flag();
    port.set_flag(flag);
    let mut host = Host::new(port);
    let (mut child, socket) = start(
        "portal_in_another_process::a_process_that_writes_anything_anywhere_into_its_portal_harms_neither_engine_nor_neighbour",
        "-",
        &[mapping.fd().unwrap(), flags.fd().unwrap()],
    );
    let impossible = |host: &Host| host.engine.service().nic().counters().impossible_indexes();
    let begun = host.engine.clock().now();
    while impossible(&host) < 1000 {
        host.serve_neighbour();
        assert!(host.engine.clock().now().since(begun) < Duration::from_secs(60));
    }
    for _ in 0..2000 {
        host.serve_neighbour();
    }
    drop(socket);
    assert!(child.wait().unwrap().success());
    host.serve_neighbour();
}

#[test]
fn a_descriptor_that_holds_no_such_portal_is_refused_with_the_reason() {
    let (mapping, _) = shared_portal();
    let len = PortalMemory::footprint(COUNT);
    let given = || mapping.fd().unwrap().try_clone_to_owned().unwrap();
    let joined = || Arc::new(Mapping::join_of_len(given(), len).unwrap());
    assert!(PortalMemory::join(&joined(), COUNT).is_ok());
    // For a portal of another number of slots its length is another.
    let other = Mapping::join_of_len(given(), PortalMemory::footprint(9)).unwrap_err();
    assert!(matches!(other, MemoryError::OtherLength { found, .. } if found == len), "{other}");
    let other = PortalMemory::join(&joined(), 9).unwrap_err();
    assert!(matches!(other, LayoutError::TooShort { .. }), "{other}");
    let other = PortalMemory::join(&joined(), 1).unwrap_err();
    assert!(matches!(other, LayoutError::Size { found: 4, wanted: 1, .. }), "{other}");
    // The shared memory says so, which both have.
    for (word, said) in [(1, "version 9"), (0, "1RMAport")] {
        mapping.words()[word].store(9, std::sync::atomic::Ordering::Relaxed);
        let error = PortalMemory::join(&joined(), COUNT).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let unsealed = rustix::fs::memfd_create("rma-test", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&unsealed, len as u64).unwrap();
    let clone = || unsealed.try_clone().unwrap();
    assert_eq!(Mapping::join_of_len(clone(), len).unwrap_err(), MemoryError::NotSealed);
    rustix::fs::fcntl_add_seals(&unsealed, SealFlags::SHRINK).unwrap();
    let blank = Arc::new(Mapping::join_of_len(clone(), len).unwrap());
    let error = PortalMemory::join(&blank, COUNT).unwrap_err();
    assert!(matches!(error, LayoutError::Kind { found: [0, ..], .. }), "{error}");
}
