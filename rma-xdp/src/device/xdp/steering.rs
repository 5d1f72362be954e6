//! The steering program: loads it, attaches it to the interface, puts our sockets into its map.
//!
//! The program itself is in `ebpf/`. It redirects UDP datagrams to our addresses and ports to the
//! AF_XDP socket of the receive queue they came in on, as long as that is read, and passes
//! everything else to the kernel.
//!
//! Invariant: the attachment lives exactly as long as a [`Steering`]. It is a `bpf_link`, which the
//! kernel removes when its last descriptor is closed, so nothing stays attached after a kill
//! either. (aya falls back to an attachment by netlink, which would stay, only where the kernel has
//! no links for XDP; those came with Linux 5.9, and the multi-buffer program does not load before
//! 5.18.)

use std::{
    error::Error,
    io,
    net::IpAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{Map, MapError, XskMap},
    programs::{Xdp, XdpMode, xdp::XdpLinkId},
};

use rma_core::{addr::HostAddr, port::Ports};
use rma_shm::Shortage;

use super::{
    capabilities::Capabilities,
    choice::{Candidate, ModeReason},
    config::AttachMode,
    description::Fallback,
    error::{Refusal, XdpError},
    occupant::InTheWay,
    queues::ReadSign,
    umem::CHUNK_DATA,
};

/// The program, as `cargo xtask ebpf` built it.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../rma-steer.bpf.o");

/// Names in the object.
const PROGRAM: &str = "rma_steer";
const SOCKETS: &str = "XSKS";
const QUEUES: &str = "QUEUES";
const PORTS: &str = "PORTS";
const ADDRESS_V4: &str = "ADDRESS_V4";
const ADDRESS_V6: &str = "ADDRESS_V6";
const CHUNKS_MAX: &str = "CHUNKS_MAX";
const CHUNK_OCTETS: &str = "CHUNK_DATA";

/// The ports that are steered, and the number of queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steered<'a> {
    pub(super) ports: &'a Ports,
    /// At most one of each family.
    pub(super) addresses: &'a [HostAddr],
    pub(super) queues: u32,
    /// Chunks that each queue's socket receives with; its ring has as many places.
    pub(super) rx_chunks: u32,
    /// Whether a frame may take several of them.
    pub(super) multi_buffer: bool,
}

impl Steered<'_> {
    /// How many chunks of a queue may be unread before the program drops frames: three of four. The
    /// others are for a driver in zero-copy mode, to receive what passes, and for the frames of a
    /// burst, which the program may take for read ones. More: a burst of the machine's other
    /// traffic finds no chunk while this process is stopped. Fewer: a short pause loses frames.
    fn chunks_max(&self) -> u32 {
        self.rx_chunks / 4 * 3
    }

    /// The addresses in the order of their octets, by family. Zero stands for none.
    fn addresses(&self) -> (u32, [u64; 2]) {
        let (mut v4, mut v6) = (0, [0; 2]);
        for address in self.addresses {
            match address.ip() {
                IpAddr::V4(ip) => v4 = u32::from_ne_bytes(ip.octets()),
                IpAddr::V6(ip) => {
                    let bits = ip.to_bits();
                    v6 = [(bits >> 64) as u64, bits as u64].map(u64::to_be);
                }
            }
        }
        (v4, v6)
    }
}

/// The program, attached. Dropping it detaches the program and empties the map.
pub(super) struct Steering {
    ebpf: Ebpf,
    link: Option<XdpLinkId>,
    mode: AttachMode,
    reason: ModeReason,
    fallback: Option<Fallback>,
}

impl Steering {
    /// Loads the program for what is `steered` and attaches it, in the first mode of `candidates`
    /// that is not refused. Until sockets are in its map, which has room for as many as the
    /// interface may have queues, it passes everything.
    pub(super) fn attach(
        interface: &str,
        index: u32,
        steered: &Steered<'_>,
        candidates: &[Candidate],
    ) -> Result<Self, XdpError> {
        let (v4, v6) = steered.addresses();
        let chunk_octets = if steered.multi_buffer { CHUNK_DATA as u32 } else { 0 };
        let mut ebpf = EbpfLoader::new()
            .override_global(PORTS, &steered.ports.numbers(), true)
            .override_global(ADDRESS_V4, &v4, true)
            .override_global(ADDRESS_V6, &v6, true)
            .override_global(CHUNKS_MAX, &steered.chunks_max(), true)
            .override_global(CHUNK_OCTETS, &chunk_octets, true)
            .map_max_entries(SOCKETS, steered.queues)
            .map_max_entries(QUEUES, steered.queues)
            .load(OBJECT)
            .map_err(|error| load_error(interface, error))?;
        let program = program(&mut ebpf);
        program.load().map_err(|error| load_error(interface, error))?;

        let [mut native, mut generic] = [Refusal::NotWanted; 2];
        let mut fallback = None;
        for &(mode, reason) in candidates {
            let (xdp_mode, refusal) = match mode {
                AttachMode::Native => (XdpMode::Driver, &mut native),
                AttachMode::Generic => (XdpMode::Skb, &mut generic),
            };
            let error = match program.attach_to_if_index(index, xdp_mode) {
                Ok(link) => return Ok(Self { ebpf, link: Some(link), mode, reason, fallback }),
                Err(error) => system_error(&error),
            };
            // A driver that has no memory for native mode may have enough for generic mode.
            if Shortage::of(&error) == Some(Shortage::Files) {
                return Err(XdpError::from_call(interface, "attaching an XDP program", error));
            }
            match error.raw_os_error() {
                Some(errno @ (libc::EBUSY | libc::EEXIST)) => {
                    let interface = interface.into();
                    return Err(match InTheWay::of(index) {
                        InTheWay::Here(program) => XdpError::ProgramAttached { interface, program },
                        // The kernel says EEXIST then. What was here has gone by now.
                        InTheWay::OnTop(None) if errno == libc::EBUSY => {
                            XdpError::ProgramAttached { interface, program: None }
                        }
                        InTheWay::OnTop(program) => XdpError::ProgramOnTop { interface, program },
                    });
                }
                Some(libc::EPERM | libc::EACCES | libc::ENODEV) => {
                    return Err(XdpError::from_call(interface, "attaching an XDP program", error));
                }
                errno => {
                    let errno = errno.unwrap_or_default();
                    let reason = Refusal::Errno { call: "BPF_LINK_CREATE", errno };
                    *refusal = reason;
                    fallback = Some(Fallback::of_mode(mode, reason));
                }
            }
        }
        Err(XdpError::AttachFailed { interface: interface.into(), native, generic })
    }

    /// Returns the mode in which it runs.
    pub(super) fn mode(&self) -> AttachMode {
        self.mode
    }

    /// Returns the reason for its mode.
    pub(super) fn reason(&self) -> ModeReason {
        self.reason
    }

    /// The mode that would have been better, if that was refused.
    pub(super) fn fallback(&self) -> Option<Fallback> {
        self.fallback
    }

    /// By what each queue's socket tells the program what it has read.
    pub(super) fn read_signs(
        &self,
        interface: &str,
        queues: u32,
    ) -> Result<Vec<ReadSign>, XdpError> {
        let Some(Map::Array(map)) = self.ebpf.map(QUEUES) else {
            unreachable!("the object has the map, and it is an array")
        };
        ReadSign::of_map(map.fd().as_fd(), queues as usize).map_err(|error| {
            XdpError::from_call(interface, "mapping the steering program's queues", error)
        })
    }

    /// From now on frames that come in on `queue` go to the socket.
    pub(super) fn redirect(
        &mut self,
        interface: &str,
        queue: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<(), XdpError> {
        let map = self.ebpf.map_mut(SOCKETS).expect("the object has the map");
        let mut map = XskMap::try_from(map).expect("the map is an XSKMAP");
        map.set(queue, socket.as_raw_fd(), 0).map_err(|error: MapError| {
            XdpError::from_call(interface, "putting a socket into the XSKMAP", system_error(&error))
        })
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            // It fails only if the interface is gone, and the attachment with it. Without this call
            // closing the descriptor a moment later does the same.
            let _detached = program(&mut self.ebpf).detach(link);
        }
    }
}

/// The program in our object.
fn program(ebpf: &mut Ebpf) -> &mut Xdp {
    let program = ebpf.program_mut(PROGRAM).expect("the object has the program");
    program.try_into().expect("the program is an XDP program")
}

/// The error of the system call behind an error of aya.
fn system_error(error: &(dyn Error + 'static)) -> io::Error {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(errno) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(errno);
        }
        at = error.source();
    }
    io::Error::other("aya reported no system error")
}

fn load_error(interface: &str, error: impl Error + Send + Sync + 'static) -> XdpError {
    let (system, loading) = (system_error(&error), "loading the steering program");
    if let Some(short) = XdpError::of_library(interface, loading, &system) {
        return short;
    }
    match system.raw_os_error() {
        Some(libc::EPERM) => XdpError::from_call(interface, "loading the steering program", system),
        // The verifier says so as well: to a program that it does not like, and to one for which a
        // capability is missing.
        Some(libc::EACCES) if !Capabilities::missing().is_empty() => {
            XdpError::from_call(interface, "loading the steering program", system)
        }
        _ => XdpError::SteeringProgram { interface: interface.into(), source: Box::new(error) },
    }
}
