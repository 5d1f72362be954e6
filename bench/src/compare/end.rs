//! One end of a connection that messages go over, and the plain ones of the kernel.

use std::{
    io::{self, Read as _, Write as _},
    net::{TcpStream, UdpSocket},
};

/// Messages up to this length share a call.
pub(super) const SHORT: usize = 4 << 10;

/// One end of a way.
pub(super) trait End {
    /// Takes as much of a message as there is room for. It may wait for [`End::flush`].
    fn put(&mut self, message: &[u8]) -> io::Result<usize>;

    /// Hands over to the kernel what waits, all of it, or else it is an error.
    fn flush(&mut self) -> io::Result<()>;

    /// Takes what has arrived, as far as there is room.
    fn get(&mut self, into: &mut [u8]) -> io::Result<usize>;
}

impl End for UdpSocket {
    fn put(&mut self, message: &[u8]) -> io::Result<usize> {
        self.send(message)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn get(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.recv(into)
    }
}

/// A connection, with short messages that wait to be written.
pub(super) struct Tcp {
    stream: TcpStream,
    waiting: Vec<u8>,
}

impl Tcp {
    pub(super) const fn new(stream: TcpStream) -> Self {
        Self { stream, waiting: Vec::new() }
    }
}

impl End for Tcp {
    fn put(&mut self, message: &[u8]) -> io::Result<usize> {
        if message.len() > SHORT {
            self.flush()?;
            return self.stream.write(message);
        }
        self.waiting.extend_from_slice(message);
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            let written = self.stream.write(&self.waiting)?;
            self.waiting.drain(..written);
        }
        Ok(())
    }

    fn get(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(into)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count),
        }
    }
}
