//! The RPC of StaR's paper (§V): a call is three SENDs of 32 bytes to the server, which answers
//! with one, and the next call begins at once. The server is the stateless side: what its engine
//! keeps does not depend on how many clients it has.
//!
//! ```text
//! cargo run --release --example star_rpc                    both here, over UDP on loopback
//! star_rpc serve DEVICE 127.0.0.1:7471                      on the server
//! ssh -N -L 7471:127.0.0.1:7471 SERVER &                    on a client: what is told at set-up
//! star_rpc call DEVICE 127.0.0.1:7471 64 1000000            has keys, so it goes through SSH
//! ```
//!
//! DEVICE is `xdp:eth1`, an interface for AF_XDP, or `udp:192.0.2.1`, one of this machine's
//! addresses for kernel UDP sockets, with settings after it as in `xdp:eth1,port=4000`.

use std::{
    collections::HashMap,
    env,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use rma_xdp::{
    Host, HostConfig,
    star::{
        Access, CqId, MemoryRegion, Qp, QpConfig, RecvWr, Role, SendWr, StarConfigBuilder,
        StarPortalConfig, StarVerbs, Wc, WcStatus,
    },
    time::{Clock, TscClock},
};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Bytes of a message.
const LEN: u32 = 32;
/// SENDs of a call.
const QUESTIONS: u64 = 3;
/// RECVs that a queue pair has posted: those of the call that is under way, and of the next.
const RECVS: u64 = 2 * QUESTIONS;
/// Completions polled at once.
const WCS: usize = 32;
/// How long a read of a stream may block. Set-ups look at the clock in between, so a peer that says
/// nothing ends within `VerbsConfig::set_up_timeout`.
const READ_MAX: Duration = Duration::from_secs(1);

fn main() -> Result<(), Error> {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] => both_here(),
        ["serve", device, listen] => {
            let listener = TcpListener::bind(listen)?;
            println!("waiting for clients at {}", listener.local_addr()?);
            serve(&open(device)?, &listener, usize::MAX)
        }
        ["call", device, server] => call(&open(device)?, server, (64, 1_000_000)),
        ["call", device, server, connections, calls] => {
            call(&open(device)?, server, (connections.parse()?, calls.parse()?))
        }
        _ => Err(
            "star_rpc [serve DEVICE ADDRESS:PORT | call DEVICE ADDRESS:PORT [CONNECTIONS CALLS]]"
                .into(),
        ),
    }
}

fn both_here() -> Result<(), Error> {
    let (server, client) = (open("127.0.0.111")?, open("127.0.0.112")?);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let serving = thread::spawn(move || serve(&server, &listener, 1));
    call(&client, &address, (4, 400))?;
    serving.join().expect("the server's thread goes on to its end")
}

fn open(device: &str) -> Result<Host, Error> {
    let config: HostConfig = device.parse()?;
    Ok(Host::open(config.with(|it| it.star = Some(StarConfigBuilder::default())))?)
}

/// Serves so many clients, each on a thread of its own with a portal of its own: one that is silent
/// while it connects keeps nobody waiting. (With one portal for all, `AsyncVerbs::accept` does the
/// same.)
fn serve(host: &Host, listener: &TcpListener, clients: usize) -> Result<(), Error> {
    thread::scope(|scope| {
        for stream in listener.incoming().take(clients) {
            let mut stream = stream?;
            scope.spawn(move || match serve_one(host, &mut stream) {
                Ok(calls) => println!("a client made {calls} calls"),
                Err(error) => eprintln!("a client is gone: {error}"),
            });
        }
        Ok(())
    })
}

/// Answers all calls of a client, over as many connections as it wants.
fn serve_one(host: &Host, stream: &mut TcpStream) -> Result<u64, Error> {
    let (mut connections, mut calls) = ([0; 4], [0; 8]);
    prepare(stream)?;
    stream.read_exact(&mut connections)?;
    stream.read_exact(&mut calls)?;
    let (connections, calls) = (u32::from_be_bytes(connections), u64::from_be_bytes(calls));
    let mut side = Side::open(host, Role::Stateless, connections, |verbs, qp| {
        Ok(verbs.accept_over(qp, &mut *stream)?)
    })?;
    let mut asked = vec![0_u64; connections as usize];
    let mut answered = 0;
    while answered < calls {
        for index in side.messages()? {
            asked[index] += 1;
            if asked[index].is_multiple_of(QUESTIONS) {
                side.send(index)?;
                answered += 1;
            }
        }
    }
    // The client has all answers when it is gone.
    stream.set_read_timeout(None)?;
    let _ = stream.read(&mut [0])?;
    Ok(answered)
}

/// For set-ups: what is written leaves at once, and no read blocks for long.
fn prepare(stream: &TcpStream) -> Result<(), Error> {
    stream.set_nodelay(true)?;
    Ok(stream.set_read_timeout(Some(READ_MAX))?)
}

/// Makes calls over all connections at once, and says how many a second there were.
fn call(host: &Host, server: &str, (connections, calls): (u32, u64)) -> Result<(), Error> {
    let mut stream = TcpStream::connect(server)?;
    prepare(&stream)?;
    stream.write_all(&connections.to_be_bytes())?;
    stream.write_all(&calls.to_be_bytes())?;
    let mut side = Side::open(host, Role::Stateful, connections, |verbs, qp| {
        Ok(verbs.connect_over(qp, &mut stream)?)
    })?;
    let clock = TscClock::new();
    let began = clock.now();
    let (mut begun, mut done) = (0, 0);
    let mut call = |side: &mut Side, index| {
        if begun < calls {
            begun += 1;
            (0..QUESTIONS).try_for_each(|_| side.send(index))?;
        }
        Ok::<_, Error>(())
    };
    for index in 0..connections as usize {
        call(&mut side, index)?;
    }
    while done < calls {
        for index in side.messages()? {
            done += 1;
            call(&mut side, index)?;
        }
    }
    let took = clock.now().since(began);
    println!(
        "{done} calls over {connections} connections in {took:.1?}: {:.0} a second",
        done as f64 / took.as_secs_f64()
    );
    Ok(())
}

/// The objects of either side: one protection domain, memory, one completion queue, queue pairs.
struct Side {
    verbs: StarVerbs,
    cq: CqId,
    mr: MemoryRegion,
    qps: Vec<Qp>,
    /// The index of the queue pair with a number, as completions name it.
    by_number: HashMap<u32, usize>,
}

impl Side {
    /// With so many queue pairs, which `connect` connects one after the other.
    fn open(
        host: &Host,
        role: Role,
        connections: u32,
        mut connect: impl FnMut(&mut StarVerbs, Qp) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let depth = 2 * RECVS as u32;
        let mut verbs = host.verbs(StarPortalConfig::default().with(|it| {
            it.queue_pairs = connections;
            it.work_requests = connections * depth;
            it.stateful_connections = if role == Role::Stateful { connections } else { 0 };
        }))?;
        let pd = host.alloc_pd(&verbs)?;
        let mr = host.reg_mr(&pd, connections as usize * 2 * LEN as usize, Access::LOCAL_WRITE)?;
        let cq = verbs.create_cq(connections * depth);
        let config = QpConfig { role, send_depth: RECVS as u16, recv_depth: RECVS as u16 };
        let (mut qps, mut by_number) = (Vec::new(), HashMap::new());
        for index in 0..connections as usize {
            let qp = verbs.create_qp(&pd, cq, cq, config)?;
            connect(&mut verbs, qp)?;
            by_number.insert(verbs.qpn(qp).expect("it was just made"), index);
            qps.push(qp);
        }
        let mut side = Self { verbs, cq, mr, qps, by_number };
        for index in 0..side.qps.len() {
            (0..RECVS).try_for_each(|_| side.recv(index))?;
        }
        Ok(side)
    }

    /// Posts a RECV. What the messages say means nothing here, so they share a place.
    fn recv(&mut self, index: usize) -> Result<(), Error> {
        let sge = self.mr.slice(index as u64 * 2 * u64::from(LEN), LEN);
        Ok(self.verbs.post_recv(self.qps[index], &RecvWr { wr_id: 0, sge })?)
    }

    fn send(&mut self, index: usize) -> Result<(), Error> {
        let sge = self.mr.slice((index as u64 * 2 + 1) * u64::from(LEN), LEN);
        Ok(self.verbs.post_send(self.qps[index], &SendWr::send(0, sge).inline())?)
    }

    /// Waits for messages, posts a RECV for each that has come, and says from which queue pairs.
    fn messages(&mut self) -> Result<Vec<usize>, Error> {
        let mut wcs = [Wc::EMPTY; WCS];
        let count = self.verbs.wait_cq(self.cq, &mut wcs)?;
        let mut from = Vec::with_capacity(count);
        for wc in &wcs[..count] {
            if wc.status != WcStatus::Success {
                return Err(format!("a {:?} ended with {:?}", wc.opcode, wc.status).into());
            }
            if wc.opcode.is_recv() {
                let index = self.by_number[&wc.qp_num];
                self.recv(index)?;
                from.push(index);
            }
        }
        Ok(from)
    }
}
