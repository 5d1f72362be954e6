//! The steering program: loads it, attaches it to the interface, puts our sockets into its map.
//!
//! The program itself is in `ebpf/`. It redirects UDP datagrams to our ports to the AF_XDP socket
//! of the receive queue they came in on, and passes everything else to the kernel.
//!
//! Invariant: the attachment lives exactly as long as a [`Steering`]. It is a `bpf_link`, which the
//! kernel removes when its last descriptor is closed, so nothing stays attached after a kill
//! either. (aya falls back to an attachment by netlink, which would stay, only where the kernel has
//! no links for XDP; those came with Linux 5.9, and the multi-buffer program does not load before
//! 5.18.)

use std::{
    error::Error,
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{MapError, XskMap},
    programs::{Xdp, XdpMode, xdp::XdpLinkId},
};

use rma_core::port::Ports;

use super::{
    capabilities::Capabilities,
    choice::{Candidate, ModeReason},
    config::AttachMode,
    description::Fallback,
    error::{Refusal, XdpError},
    occupant::InTheWay,
};

/// The program, as `cargo xtask ebpf` built it.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../rma-steer.bpf.o");

/// Names in the object.
const PROGRAM: &str = "rma_steer";
const SOCKETS: &str = "XSKS";
const PORTS: &str = "PORTS";

/// The program, attached. Dropping it detaches the program and empties the map.
pub(super) struct Steering {
    ebpf: Ebpf,
    link: Option<XdpLinkId>,
    mode: AttachMode,
    reason: ModeReason,
    fallback: Option<Fallback>,
}

impl Steering {
    /// Loads the program for `ports` and attaches it, in the first mode of `candidates` that is not
    /// refused. Until sockets are in its map, which has room for `queues` of them, it passes
    /// everything.
    pub(super) fn attach(
        interface: &str,
        index: u32,
        ports: &Ports,
        queues: u32,
        candidates: &[Candidate],
    ) -> Result<Self, XdpError> {
        let mut ebpf = EbpfLoader::new()
            .override_global(PORTS, &ports.numbers(), true)
            .map_max_entries(SOCKETS, queues)
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

    /// Where it runs.
    pub(super) fn mode(&self) -> AttachMode {
        self.mode
    }

    /// Why it runs there.
    pub(super) fn reason(&self) -> ModeReason {
        self.reason
    }

    /// The mode that would have been better, if that was refused.
    pub(super) fn fallback(&self) -> Option<Fallback> {
        self.fallback
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
    let system = system_error(&error);
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
