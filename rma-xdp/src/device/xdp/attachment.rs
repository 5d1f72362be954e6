//! The part of an attachment to an interface that a host has once, whatever its engines: the
//! steering program, the reserved ports, what is known of the queues.
//!
//! Each engine has the sockets of its own queues beside it: see [`super::share`]. Both are made and
//! dropped on the control path: where the interface goes away, all of it is of no use any longer,
//! and one that comes back has another index, and perhaps other queues and another MTU.
//!
//! Invariant: where nobody holds it any longer the program is detached. [`Attachment::detach`] does
//! so before, whoever still holds it: an engine that stands still keeps sockets, and neither the
//! program nor the ports.

use core::ops::Range;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use super::{
    broken::Release,
    choice::{self, Copying, ModeReason, ZeroCopy},
    config::{AttachMode, XdpConfig},
    counters::Counters,
    description::{Description, Fallback, Feature},
    device::{Device, RxQueues},
    doubts::Doubts,
    error::{InterfaceName, Refusal, XdpError},
    packet::{self, ETHERNET_LEN},
    port::ReservedPorts,
    queues::ReadSign,
    socket::Socket,
    steering::{Steered, Steering},
    umem::CHUNK_DATA,
    watch::XskWatch,
};
use crate::device::{
    engines::Engines,
    net::{self, PathTable, XdpFeatures},
};

/// Ethernet header and two VLAN tags: what a packet has besides its MTU.
pub(super) const LINK_HEADERS: usize = ETHERNET_LEN + packet::VLAN_TAGS_MAX * packet::VLAN_TAG_LEN;
/// The largest MTU whose packets fit into one chunk.
pub const SINGLE_BUFFER_MTU: u32 = (CHUNK_DATA - LINK_HEADERS) as u32;
/// The smallest MTUs of a link, from RFC 1122 (576 octets) and RFC 8200 (1280).
const MTU_MIN_V4: u32 = 576;
const MTU_MIN_V6: u32 = 1280;

/// The interface, as far as it is the host's.
pub(super) struct Attachment {
    held: Mutex<Option<Held>>,
    /// The interface's name just then, and its index.
    pub(super) name: Box<str>,
    pub(super) index: u32,
    pub(super) mtu: u32,
    /// Whether a packet may need several chunks.
    pub(super) multi_buffer: bool,
    pub(super) copying: Copying,
    mode: AttachMode,
    reason: ModeReason,
    /// How many engines share the queues.
    pub(super) engines: u32,
    /// The receive queues that there are, and how many of them to attach to.
    pub(super) there: RxQueues,
    pub(super) most: u32,
    pub(super) read_signs: Vec<ReadSign>,
    /// By what was known before the sockets.
    fallbacks: Vec<Fallback>,
    description: OnceLock<Description>,
}

/// The parts that keep others from the interface, and from the ports.
struct Held {
    // Dropped in this order.
    steering: Steering,
    ports: Arc<ReservedPorts>,
}

/// The experience with earlier attachments to the same interface.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Learnt {
    /// One in generic mode lost frames.
    pub(super) generic_lost_frames: bool,
    pub(super) zero_copy: ZeroCopy,
    /// One to all receive queues was refused.
    pub(super) fewer_queues: Option<FewerQueues>,
}

/// To how many receive queues to attach, though there are more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FewerQueues {
    pub(super) most: u32,
    pub(super) reason: Refusal,
}

impl FewerQueues {
    /// As many as were polled, as `error` says that the `added` ones, which are numbered from there
    /// on, cannot be had. `None` if it says something else, or there are none, or that is `known`:
    /// then it is tried again as it is.
    pub(super) fn after(error: &XdpError, added: Range<u32>, known: Option<Self>) -> Option<Self> {
        let errno = error.queue_errno().filter(|_| known.is_none() && !added.is_empty())?;
        let reason = Refusal::Errno { call: "an AF_XDP socket for each", errno };
        Some(Self { most: added.start, reason })
    }
}

impl Attachment {
    /// Reserves the ports, attaches the steering program, counts the queues. Until there are
    /// sockets for these the program passes everything. Must be called in the network namespace of
    /// the interface. `learnt`: by attaching to it before.
    pub(super) fn open(
        config: &XdpConfig,
        paths: &PathTable,
        learnt: Learnt,
    ) -> Result<Self, XdpError> {
        let index = paths.interface_index().map_or_else(|| index_of(&config.interface), Ok)?;
        let device = Device::open(index, &config.interface)?;
        let interface = &*device.name;
        if !device.is_up()? {
            return Err(XdpError::InterfaceDown { interface: interface.into() });
        }
        let mtu = paths.interface_mtu();
        check_mtu(config, mtu)?;
        let multi_buffer = mtu > SINGLE_BUFFER_MTU;

        let driver = device.driver();
        let driver = driver.as_deref();
        let native_on_veth = native_on_veth(config.engines, &device, learnt)?;
        let candidates = choice::candidates(interface, config.mode, driver, native_on_veth)?;
        let addresses = &config.local_addresses;
        let ports = config.ports()?;
        let reserved = ReservedPorts::reserve(interface, index, addresses, &ports)?;
        let queues_max = device.rx_queues_max()?;
        let steered = Steered {
            ports: &ports,
            addresses,
            queues: queues_max,
            rx_chunks: config.rx_chunks(),
            multi_buffer,
        };
        let steering = Steering::attach(interface, index, &steered, candidates)?;
        // Not before: attaching gives some interfaces more of them.
        let queues = device.queues()?;
        let engines = config.engines.number(queues.pairs());
        queues.suffice(interface, engines)?;

        let most = queues.receive.most();
        let (wanted, mode, release) = (config.mode, steering.mode(), Release::running());
        let copying = choice::copying(wanted, mode, driver, release, learnt.zero_copy);
        let mut fallbacks = Vec::from_iter(steering.fallback());
        let most = learnt.fewer_queues.map_or(most, |fewer| fewer.most.min(most));
        if let (RxQueues::Exactly(there), Some(FewerQueues { reason, .. })) =
            (queues.receive, learnt.fewer_queues)
            && there > most
        {
            let (wanted, got) = (Feature::AllQueues, Feature::SomeQueues);
            fallbacks.push(Fallback { wanted, got, reason });
        }
        Ok(Self {
            mtu,
            multi_buffer,
            copying,
            mode,
            reason: steering.reason(),
            engines,
            there: queues.receive,
            most,
            read_signs: steering.read_signs(interface, queues_max)?,
            fallbacks,
            description: OnceLock::new(),
            held: Mutex::new(Some(Held { steering, ports: Arc::new(reserved) })),
            index,
            name: device.name,
        })
    }

    /// Has the frames that come in on the sockets' queues go to them from now on. They must be all
    /// that there are so far.
    pub(super) fn begin<'a>(
        &self,
        sockets: impl Iterator<Item = &'a Socket> + Clone,
    ) -> Result<(), XdpError> {
        sockets.clone().try_for_each(|socket| self.redirect(socket))?;
        if let Some(Held { ports, .. }) = &*self.held() {
            // Frames until now went past the program, as they must.
            let _before = ports.drain();
        }
        let interface = &*self.name;
        // Work done by its name may have been done to another interface that has it now.
        if *Device::open(self.index, interface)?.name != *interface {
            return Err(XdpError::UnknownInterface { interface: interface.into() });
        }
        let zero_copy = sockets.clone().all(Socket::is_zero_copy);
        let mut fallbacks = self.fallbacks.clone();
        if !zero_copy {
            let (wanted, got) = (Feature::ZeroCopy, Feature::Copy);
            fallbacks.push(Fallback { wanted, got, reason: self.why_copy() });
        }
        let (queues, queues_there) = match self.there {
            RxQueues::Exactly(there) => (self.most, there),
            RxQueues::AtMost(_) => (sockets.clone().count() as u32, sockets.count() as u32),
        };
        let description = Description {
            interface: interface.into(),
            mode: self.mode,
            mode_reason: self.reason,
            zero_copy,
            queues,
            queues_there,
            engines: self.engines,
            multi_buffer: self.multi_buffer,
            mtu: self.mtu,
            fallbacks,
        };
        self.description.set(description).expect("an attachment begins once");
        Ok(())
    }

    /// Has the frames that come in on the socket's queue go to it from now on. Nothing once it is
    /// detached.
    pub(super) fn redirect(&self, socket: &Socket) -> Result<(), XdpError> {
        self.held().as_mut().map_or(Ok(()), |Held { steering, .. }| {
            steering.redirect(&self.name, socket.queue(), socket.fd())
        })
    }

    /// Takes the program off and gives the ports free, for another attachment, whoever still has
    /// sockets.
    pub(super) fn detach(&self) {
        *self.held() = None;
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        // It is there or not.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Describes it, with all its sockets: those of engines that stand still among them.
    pub(super) fn description(&self) -> &Description {
        self.description.get().expect("it has begun")
    }

    /// Returns the mode in which the steering program is attached.
    pub(super) fn mode(&self) -> AttachMode {
        self.mode
    }

    /// The longest IP packet that its buffers hold.
    pub(super) fn mtu_max(&self) -> u32 {
        self.mtu.max(SINGLE_BUFFER_MTU)
    }

    /// Returns the doubts about the mode, if there would be another.
    pub(super) fn doubts(
        &self,
        learnt: Learnt,
        watch: XskWatch,
        counters: &Arc<[Arc<Counters>]>,
    ) -> Option<Doubts> {
        let Description { zero_copy, multi_buffer, .. } = *self.description();
        if self.reason == ModeReason::FasterOnVeth {
            let held = self.held();
            return Some(Doubts::of_generic(&held.as_ref()?.ports, watch, multi_buffer));
        }
        Doubts::of_zero_copy(self.index, zero_copy, learnt.zero_copy, counters)
    }

    /// Returns the reason why sockets that were bound so work without zero-copy.
    pub(super) fn why_copy(&self) -> Refusal {
        let features = match self.copying {
            Copying::Copy(Refusal::GenericMode) => None,
            _ => XdpFeatures::of(self.index),
        };
        match (self.copying, features) {
            (_, Some(XdpFeatures { zero_copy: false, .. })) => Refusal::Driver,
            (Copying::Copy(reason), _) => reason,
            (_, Some(XdpFeatures { zero_copy_multi_buffer: false, .. })) if self.multi_buffer => {
                let interface = InterfaceName::new(&self.name);
                Refusal::OneBuffer { interface, limit: SINGLE_BUFFER_MTU }
            }
            (_, Some(_)) => Refusal::DriverHere,
            (_, None) => Refusal::DriverUntold,
        }
    }
}

impl fmt::Debug for Attachment {
    /// Maps and programs tell nobody anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment").field("description", &self.description).finish_non_exhaustive()
    }
}

/// Gives the reason for native mode on veth, where it is the slower one, if there is one. The
/// program is not attached yet, so the queues are those without it, which on veth are all.
fn native_on_veth(
    engines: Engines,
    device: &Device,
    learnt: Learnt,
) -> Result<Option<ModeReason>, XdpError> {
    if engines != Engines::One && engines.number(device.queues()?.pairs()) > 1 {
        return Ok(Some(ModeReason::SeveralEngines));
    }
    Ok(learnt.generic_lost_frames.then_some(ModeReason::GenericLostFrames))
}

fn check_mtu(config: &XdpConfig, mtu: u32) -> Result<(), XdpError> {
    let any_v6 = config.local_addresses.iter().any(|address| !address.is_ipv4());
    let (version, minimum) = if any_v6 { (6, MTU_MIN_V6) } else { (4, MTU_MIN_V4) };
    if mtu < minimum {
        let interface = config.interface.clone();
        return Err(XdpError::MtuTooSmall { interface, mtu, version, minimum });
    }
    Ok(())
}

/// The index of an interface that nobody follows.
fn index_of(interface: &str) -> Result<u32, XdpError> {
    net::index_of(interface).map_err(|error| match error.raw_os_error() {
        // Longer than any name can be.
        Some(libc::ERANGE) => XdpError::UnknownInterface { interface: interface.into() },
        _ => XdpError::from_call(interface, "looking up the interface", error),
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// On an interface of four receive queues of which two were there at first.
    #[test]
    fn added_queues_that_cannot_be_had_are_given_up_once_and_other_errors_tried_again() {
        let interface: Box<str> = "eth9".into();
        let in_use = XdpError::QueueInUse { interface: interface.clone(), queue: 2, holder: None };
        let call = "bind";
        let system = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            XdpError::System { interface: interface.clone(), call, source }
        };
        for (error, errno) in [
            (in_use, libc::EBUSY),
            (
                XdpError::UmemLockedMemory { interface: interface.clone(), bytes: 4096 },
                libc::ENOBUFS,
            ),
            (system(libc::ENOMEM), libc::ENOMEM),
        ] {
            let fewer = FewerQueues::after(&error, 2..4, None);
            let reason = Refusal::Errno { call: "an AF_XDP socket for each", errno };
            assert_eq!(fewer, Some(FewerQueues { most: 2, reason }), "{error}");
            assert_eq!(FewerQueues::after(&error, 2..4, fewer), None, "it is known");
            assert_eq!(FewerQueues::after(&error, 4..4, None), None, "none was added");
        }
        let other = XdpError::NativeOnBond { interface };
        assert_eq!(FewerQueues::after(&other, 2..4, None), None, "no queue is to blame");
    }
}
