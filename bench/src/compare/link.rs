//! A veth pair for sockets, and the sockets on it.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
};

use rma_lab::{Lab, LabConfig};
use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_send_buffer_size,
    set_socket_send_buffer_size_force,
};

use crate::error::PairError;

/// Bytes of a socket's buffers: more than is ever under way, so that the kernel drops nothing.
const BUFFER: usize = 8 << 20;

/// The limit of an interface that was told none.
const SEGMENTS_MAX: &str = "65535";

/// A UDP socket that does not block, with buffers as long as they may be: the system's limit is
/// passed over only with CAP_NET_ADMIN.
pub(super) fn udp(here: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(here)?;
    socket.set_nonblocking(true)?;
    if set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
        set_socket_recv_buffer_size(&socket, BUFFER)?;
    }
    if set_socket_send_buffer_size_force(&socket, BUFFER).is_err() {
        set_socket_send_buffer_size(&socket, BUFFER)?;
    }
    Ok(socket)
}

/// Two namespaces and a veth pair that no XDP program is attached to.
#[derive(Debug)]
pub struct Sockets {
    lab: Lab,
    /// Whether the pair carries more than a segment at a time.
    gso: bool,
}

impl Sockets {
    /// Makes the pair.
    ///
    /// # Errors
    /// If something could not be made.
    pub fn open(config: &LabConfig) -> Result<Self, PairError> {
        Ok(Self { lab: Lab::new(config)?, gso: true })
    }

    /// Has TCP's segments carried one by one from now on, as a wire does: otherwise a veth pair
    /// hands over 64 KiB by reference.
    #[must_use]
    pub fn without_gso(self) -> Self {
        Self { gso: false, ..self }
    }

    /// The namespaces, for hosts whose device is the kernel's UDP sockets.
    #[must_use]
    pub const fn lab(&self) -> &Lab {
        &self.lab
    }

    /// A UDP socket at each end, connected to each other: the client's and the server's. They do
    /// not block.
    pub(super) fn udp(&self) -> Result<[UdpSocket; 2], PairError> {
        let client = {
            let _inside = self.lab.a().enter()?;
            udp((Lab::A_V4, 0).into()).map_err(PairError::Sockets)?
        };
        let server = {
            let _inside = self.lab.b().enter()?;
            udp((Lab::B_V4, 0).into()).map_err(PairError::Sockets)?
        };
        let connect = || {
            client.connect(server.local_addr()?)?;
            server.connect(client.local_addr()?)
        };
        connect().map_err(PairError::Sockets)?;
        Ok([client, server])
    }

    /// Both ends of a TCP connection: the client's and the server's. They do not block, and send
    /// what is written at once.
    ///
    /// # Errors
    /// If they cannot be had.
    pub fn tcp(&self) -> Result<[TcpStream; 2], PairError> {
        self.carry_segments(SEGMENTS_MAX)?;
        let listener = {
            let _inside = self.lab.b().enter()?;
            TcpListener::bind((Lab::B_V4, 0)).map_err(PairError::Sockets)?
        };
        let inside = self.lab.a().enter()?;
        let connect = || {
            let client = TcpStream::connect(listener.local_addr()?)?;
            let (server, _) = listener.accept()?;
            for socket in [&client, &server] {
                socket.set_nodelay(true)?;
                socket.set_nonblocking(true)?;
            }
            Ok([client, server])
        };
        let ends = connect().map_err(PairError::Sockets)?;
        drop(inside);
        self.carry_segments("1")?;
        Ok(ends)
    }

    /// Says how many segments the pair takes at once, unless it takes any number. A connection has
    /// the limit of when it was made: to one that had none the kernel hands over 64 KiB, and cuts
    /// them where they enter the pair, as with an interface that cannot. With the limit from the
    /// beginning it would not gather them at all, which takes ten times as long.
    fn carry_segments(&self, count: &str) -> Result<(), PairError> {
        for netns in [self.lab.a(), self.lab.b()].into_iter().filter(|_| !self.gso) {
            netns.ip(&["link", "set", "dev", Lab::INTERFACE, "gso_max_segs", count])?;
        }
        Ok(())
    }
}
