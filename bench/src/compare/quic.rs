//! One stream of a QUIC connection, by quinn, with the cipher that 1RMA has.
//!
//! Its runtime cannot spin. It is kept awake instead: each poll of the stream gives the tasks that
//! drive the connection a turn, and looks for datagrams without waiting.

use core::{
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};
use std::{
    io::{self, ErrorKind},
    net::UdpSocket,
    sync::Arc,
};

use quinn::{
    ClientConfig, Endpoint, EndpointConfig, RecvStream, SendStream, ServerConfig, TokioRuntime,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use tokio::{
    io::AsyncWrite,
    runtime::{Builder, Runtime},
    task::yield_now,
    time::timeout,
};

use super::{
    end::End,
    tls::{Identity, NAME, client_config},
};

/// How long a connection may take to be made.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How often a server looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(1);

/// An end of the stream.
pub(super) struct Quic {
    // Dropped in this order: streams say on the connection that they end.
    send: SendStream,
    receive: RecvStream,
    _endpoint: Endpoint,
    runtime: Runtime,
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

impl Quic {
    /// The end of a client that trusts this certificate alone. It says `token` first.
    pub(super) fn client(
        socket: UdpSocket,
        server: SocketAddr,
        certificate: &[u8],
        token: &[u8],
    ) -> io::Result<Self> {
        let config = client_config(certificate).map_err(io::Error::other)?;
        let config = QuicClientConfig::try_from(config).map_err(io::Error::other)?;
        let config = ClientConfig::new(Arc::new(config));
        let runtime = runtime()?;
        let made = async {
            let endpoint =
                Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime))?;
            let connection = endpoint.connect_with(config, server, NAME);
            let connection = connection.map_err(io::Error::other)?.await?;
            let (mut send, receive) = connection.open_bi().await?;
            // A stream that nothing was said on is not seen.
            send.write_all(&[token, &[0]].concat()).await?;
            Ok((endpoint, send, receive))
        };
        let (endpoint, send, receive) = runtime.block_on(within(made))?;
        Ok(Self { send, receive, _endpoint: endpoint, runtime })
    }

    /// The end of a server, for the first at the address of `client` that says `token`. Whoever has
    /// another address is not answered.
    pub(super) fn server(
        socket: UdpSocket,
        identity: Identity,
        client: IpAddr,
        token: &[u8],
        stop: impl Fn() -> bool,
    ) -> io::Result<Self> {
        let config = QuicServerConfig::try_from(identity.server).map_err(io::Error::other)?;
        let config = ServerConfig::with_crypto(Arc::new(config));
        let runtime = runtime()?;
        let endpoint = {
            let _inside = runtime.enter();
            let settings = EndpointConfig::default();
            Endpoint::new(settings, Some(config), socket, Arc::new(TokioRuntime))?
        };
        let made = async {
            while !stop() {
                let Ok(incoming) = timeout(LOOK, endpoint.accept()).await else { continue };
                let incoming = incoming.ok_or(ErrorKind::NotConnected)?;
                if incoming.remote_address().ip() != client {
                    incoming.ignore();
                    continue;
                }
                let said = async {
                    let (send, mut receive) = incoming.await?.accept_bi().await?;
                    let mut said = vec![0; token.len() + 1];
                    receive.read_exact(&mut said).await.map_err(io::Error::other)?;
                    Ok((send, receive, said))
                };
                match within(said).await {
                    Ok((send, receive, said)) if said[..token.len()] == *token => {
                        return Ok((send, receive));
                    }
                    _ => {}
                }
            }
            Err(ErrorKind::TimedOut.into())
        };
        let made: io::Result<_> = runtime.block_on(made);
        let (send, receive) = made?;
        Ok(Self { send, receive, _endpoint: endpoint, runtime })
    }

    /// Polls once, and gives the connection a turn if there is nothing.
    fn poll<T>(
        &mut self,
        mut once: impl FnMut(&mut SendStream, &mut RecvStream, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        let Self { send, receive, runtime, .. } = self;
        runtime.block_on(async {
            let first = core::future::poll_fn(|cx| Poll::Ready(once(send, receive, cx))).await;
            if let Poll::Ready(done) = first {
                return done;
            }
            yield_now().await;
            match core::future::poll_fn(|cx| Poll::Ready(once(send, receive, cx))).await {
                Poll::Ready(done) => done,
                Poll::Pending => Err(ErrorKind::WouldBlock.into()),
            }
        })
    }
}

/// Waits for no longer than a connection may take.
async fn within<T>(made: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(PATIENCE, pin!(made)).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

impl End for Quic {
    fn put(&mut self, message: &[u8]) -> io::Result<usize> {
        self.poll(|send, _, cx| AsyncWrite::poll_write(Pin::new(send), cx, message))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn get(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.poll(|_, receive, cx| {
            receive.poll_read(cx, into).map(|read| read.map_err(io::Error::other))
        })?;
        if count == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(count) }
    }
}
