//! A veth pair for sockets, and the sockets on it.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
};

use rma_lab::{Lab, LabConfig};
use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force};

use crate::error::PairError;

/// Bytes of a socket's buffers: more than is ever under way, so that the kernel drops nothing.
const BUFFER: usize = 8 << 20;

/// Two namespaces and a veth pair that no XDP program is attached to.
#[derive(Debug)]
pub struct Sockets(Lab);

impl Sockets {
    /// Makes the pair.
    ///
    /// # Errors
    /// If something could not be made.
    pub fn open(config: &LabConfig) -> Result<Self, PairError> {
        Ok(Self(Lab::new(config)?))
    }

    /// The namespaces, for hosts whose device is the kernel's UDP sockets.
    #[must_use]
    pub const fn lab(&self) -> &Lab {
        &self.0
    }

    /// A UDP socket at each end, connected to each other: the client's and the server's. They do
    /// not block.
    pub(super) fn udp(&self) -> Result<[UdpSocket; 2], PairError> {
        let bind = |here: SocketAddr| {
            let socket = UdpSocket::bind(here)?;
            socket.set_nonblocking(true)?;
            set_socket_recv_buffer_size_force(&socket, BUFFER)?;
            set_socket_send_buffer_size_force(&socket, BUFFER)?;
            Ok::<_, io::Error>(socket)
        };
        let client = {
            let _inside = self.0.a().enter()?;
            bind((Lab::A_V4, 0).into()).map_err(PairError::Sockets)?
        };
        let server = {
            let _inside = self.0.b().enter()?;
            bind((Lab::B_V4, 0).into()).map_err(PairError::Sockets)?
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
        let listener = {
            let _inside = self.0.b().enter()?;
            TcpListener::bind((Lab::B_V4, 0)).map_err(PairError::Sockets)?
        };
        let _inside = self.0.a().enter()?;
        let connect = || {
            let client = TcpStream::connect(listener.local_addr()?)?;
            let (server, _) = listener.accept()?;
            for socket in [&client, &server] {
                socket.set_nodelay(true)?;
                socket.set_nonblocking(true)?;
            }
            Ok([client, server])
        };
        connect().map_err(PairError::Sockets)
    }
}
