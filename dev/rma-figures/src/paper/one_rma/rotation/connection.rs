//! A connection whose key changes: there is no way but another one, TCP and a full TLS 1.3
//! handshake of both sides' certificates, between the same interfaces as the hosts' frames.
//!
//! The server ends the connection when its key has changed, in the midst of probes. The client
//! makes another one at once. Time stops when the first probe over that is issued which succeeds.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use rma_bench::{error::PairError, interrupt::Interrupt, latency::Latencies};
use rma_keys::{
    io::clock,
    tls::{directory::Directory, wall::Wall},
};
use rma_lab::Lab;
use rma_xdp::time::{Clock as _, TscClock};
use rustls::{
    ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned,
    pki_types::ServerName,
};

use super::Probe;
use crate::key_service::{Identities, SERVER};

/// Bytes of a probe and of its answer.
const SIZE: usize = 64;
/// Probes over a connection before its key changes.
const PROBES: usize = 200;

/// The results of many changes.
pub(super) struct Broken {
    /// The median time from when the first probe that failed was issued to when the first was that
    /// then succeeded, in microseconds.
    pub(super) gap: f64,
    /// The probes around the change with that gap.
    pub(super) probes: Vec<Probe>,
}

/// A change, as the client saw it.
struct Change {
    gap: f64,
    probes: Vec<Probe>,
}

fn other(error: impl core::error::Error + Send + Sync + 'static) -> PairError {
    PairError::Other(Box::new(error))
}

/// Probes a server at `to` of the lab's other side over `changes` changes of its key.
///
/// # Panics
/// If the credentials that are made for it are not in order.
pub(super) fn probe(
    lab: &Lab,
    to: IpAddr,
    changes: u64,
    interrupt: &Interrupt,
) -> Result<Broken, PairError> {
    let identities = Identities::new();
    let wall = Arc::new(Wall::new());
    wall.set(clock::now().wall);
    let credentials = |path| Directory::open(path).expect("they were made for this").1;
    let server = credentials(&identities.server).server(&wall);
    let expected = SERVER.parse().expect("an identity");
    let client = credentials(&identities.client).client(&wall, expected);
    let listener = {
        let _inside = lab.b().enter()?;
        TcpListener::bind((to, 0)).map_err(other)?
    };
    let address = listener.local_addr().map_err(other)?;
    let connections = changes + 1;
    let all = thread::scope(|scope| {
        let serving =
            scope.spawn(move || (0..connections).try_for_each(|_| serve(&listener, &server)));
        let _inside = lab.a().enter()?;
        let all = changed(address, &client, changes, interrupt);
        // A client that has given up ends a server that still waits for it.
        if all.is_err() {
            for _ in 0..connections {
                drop(TcpStream::connect(address));
            }
        }
        let _served = serving.join().expect("it does not panic");
        all.map_err(other)
    })?;
    let mut gaps = Latencies::new();
    all.iter().for_each(|it| gaps.record_nanos((it.gap * 1e3) as u64));
    let gap = gaps.quantile_us(0.5);
    let nearest = |a: &&Change, b: &&Change| (a.gap - gap).abs().total_cmp(&(b.gap - gap).abs());
    let probes = all.iter().min_by(nearest).map(|it| it.probes.clone()).unwrap_or_default();
    Ok(Broken { gap, probes })
}

/// Answers the probes of one connection, until its key changes.
fn serve(listener: &TcpListener, config: &Arc<ServerConfig>) -> io::Result<()> {
    let (stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let session = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    let mut tls = StreamOwned::new(session, stream);
    let mut octets = [0; SIZE];
    for _ in 0..PROBES {
        if tls.read_exact(&mut octets).and_then(|()| tls.write_all(&octets)).is_err() {
            break;
        }
    }
    Ok(())
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn connect(to: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Tls> {
    let stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    let name = ServerName::from(to.ip());
    let session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(session, stream))
}

/// A probe and its answer.
fn ask(tls: &mut Tls, octets: &mut [u8; SIZE]) -> io::Result<()> {
    tls.write_all(octets)?;
    tls.read_exact(octets)
}

/// The changes that a client sees that connects again whenever a probe has failed.
fn changed(
    to: SocketAddr,
    config: &Arc<ClientConfig>,
    changes: u64,
    interrupt: &Interrupt,
) -> io::Result<Vec<Change>> {
    let (clock, mut octets) = (TscClock::new(), [7; SIZE]);
    let micros = || clock.now().as_nanos() as f64 / 1e3;
    let mut tls = connect(to, config)?;
    let (mut all, mut before): (Vec<Change>, Vec<Probe>) = (Vec::new(), Vec::new());
    while (all.len() as u64) < changes {
        if interrupt.is_set() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let issued = micros();
        let ok = ask(&mut tls, &mut octets).is_ok();
        let probe = Probe { issued, took: micros() - issued };
        before.push(probe);
        if ok {
            continue;
        }
        // The handshake is done before a probe can be issued.
        tls = connect(to, config)?;
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        let again = micros();
        ask(&mut tls, &mut octets)?;
        before.push(Probe { issued: again, took: micros() - again });
        let of_change = |it: &Probe| Probe { issued: it.issued - issued, ..*it };
        all.push(Change { gap: again - issued, probes: before.iter().map(of_change).collect() });
        before.clear();
    }
    Ok(all)
}
