//! Keys over an RPC that an application has already: its calls carry the key service's messages as
//! they are, and nothing of TLS, sockets or threads of this crate is used.
//!
//! The RPC here goes over a Unix socket, where the kernel says who calls: a user id stands for what
//! a certificate proves elsewhere. Two users of one machine need no other secret; between machines
//! the application's RPC has to be encrypted (§4.2). Run it: nothing needs privileges.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    thread,
};

use rma_core::{
    addr::{HostAddr, Pid},
    op::{OpStatus, OpType},
    region::RegionId,
    time::Instant,
};
use rma_keys::{
    cache::GrantCache,
    catalog::Region,
    epoch::Life,
    message::{self, reply::Reply},
    ops::OpSet,
    peer::{Peer, Serial},
    policy::Policy,
    ring::{Holder, Standing},
    rotation::{Plan, Rotation, Schedule, Todo, Turn, Way},
    secret::RegionSecret,
    service::{Service, ServiceConfig},
    time::{Now, WallTime},
};
use rustix::{
    net::sockopt::socket_peercred,
    rand::{GetRandomFlags, getrandom},
    time::{ClockId, clock_gettime},
};

type Error = Box<dyn std::error::Error + Send + Sync>;

const SERVER: [u8; 4] = [192, 0, 2, 2];
const CLIENT: [u8; 4] = [192, 0, 2, 1];

/// The methods of the application's RPC: its own things, and one method for keys.
const ADD: u8 = 1;
const ROTATE: u8 = 2;
const KEYS: u8 = 3;

/// A frame of the application's: the number of the call, which an answer repeats, the method, and
/// what it is about.
fn send(socket: &mut UnixStream, call: u32, method: u8, body: &[u8]) -> Result<(), Error> {
    let len = u32::try_from(body.len())?;
    let head = [&call.to_be_bytes()[..], &[method], &len.to_be_bytes()].concat();
    socket.write_all(&head)?;
    Ok(socket.write_all(body)?)
}

fn receive(socket: &mut UnixStream) -> Result<(u32, u8, Vec<u8>), Error> {
    let (mut call, mut method, mut len) = ([0; 4], [0], [0; 4]);
    socket.read_exact(&mut call)?;
    socket.read_exact(&mut method)?;
    socket.read_exact(&mut len)?;
    // More than any message has, and bounded all the same.
    let len = usize::try_from(u32::from_be_bytes(len))?.min(1 << 16);
    let mut body = vec![0; len];
    socket.read_exact(&mut body)?;
    Ok((u32::from_be_bytes(call), method[0], body))
}

/// Returns the present time: since the host was booted, its sleep with it, and the date.
fn now() -> Now {
    let (boot, wall) = (clock_gettime(ClockId::Boottime), clock_gettime(ClockId::Realtime));
    Now {
        boot: Instant::from_nanos(boot.tv_sec as u64 * 1_000_000_000 + boot.tv_nsec as u64),
        wall: WallTime::from_unix_millis(wall.tv_sec * 1000 + wall.tv_nsec / 1_000_000),
    }
}

fn random<const LEN: usize>() -> Result<[u8; LEN], Error> {
    let mut octets = [0; LEN];
    getrandom(&mut octets, GetRandomFlags::empty())?;
    Ok(octets)
}

/// Returns the caller, by the kernel's word: nobody else can be it.
fn caller(socket: &UnixStream) -> Result<Peer, Error> {
    let uid = socket_peercred(socket)?.uid.as_raw();
    Ok(Peer {
        identity: format!("spiffe://this.machine/user/{uid}").parse()?,
        serial: Serial::new(&[])?,
        // It holds as long as the connection.
        not_after: WallTime::from_unix_millis(i64::MAX),
        address: CLIENT.into(),
    })
}

fn serve(mut socket: UnixStream) -> Result<(), Error> {
    let peer = caller(&socket)?;
    let policy = Policy::parse(&format!(
        "[[allow]]\nregion = \"table\"\nidentity = {:?}\nops = [\"read\"]\nlifetime = \"1h\"\n",
        peer.identity.as_str()
    ))?;
    let mut service = Service::new(Life(random()?), policy, ServiceConfig::default());
    // An owner that has a host tells it this key, with `Host::rekey`, and here where the region is.
    let first = RegionSecret::new(&mut random()?);
    let region =
        Region { responders: HostAddr::from(SERVER).into(), id: RegionId::from_bits(5), len: 4096 };
    let plan = Plan { way: Way::Host, schedule: Schedule::default(), seed: 1 };
    let mut fresh = || RegionSecret::new(&mut random().expect("the system has random numbers"));
    let mut turn =
        Turn { now: now(), service: &mut service, fresh: &mut fresh, events: Vec::new() };
    let mut rotation = Rotation::publish(&mut turn, "table".parse()?, region, &first, plan)?;
    turn.events.iter().for_each(|event| println!("owner: {event}"));
    while let Ok((call, method, body)) = receive(&mut socket) {
        let now = now();
        match method {
            KEYS => {
                // The events first: no record, no grant. `Recorded` does both, with files.
                let handled = service.handle(now, &peer, &body);
                handled.events.iter().for_each(|event| println!("owner: {event}"));
                send(&mut socket, call, method, &handled.reply)?;
            }
            ROTATE => {
                let events = Vec::new();
                let mut turn = Turn { now, service: &mut service, fresh: &mut fresh, events };
                rotation.rotate(&mut turn)?;
                if let Todo::Rekey { to, secret, .. } = rotation.poll_todo(now.boot, turn.service) {
                    // Here the host would take it.
                    let _its_key = secret.region_key();
                    rotation.handle_rekey(&mut turn, to, OpStatus::Ok)?;
                }
                turn.events.iter().for_each(|event| println!("owner: {event}"));
                send(&mut socket, call, method, &[])?;
            }
            ADD => send(&mut socket, call, method, &[body.iter().sum()])?,
            _ => return Err(format!("method {method} is none").into()),
        }
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let (mut client, server) = UnixStream::pair()?;
    let owner = thread::spawn(move || serve(server));

    let pid = Pid(std::process::id());
    let holder = Holder { initiators: HostAddr::from(CLIENT).into(), pid };
    let seed = u64::from_ne_bytes(random()?);
    let mut cache = GrantCache::new(holder, seed);
    let source = cache.source();
    let table = cache.region(source, "table".parse()?, OpSet::NONE.with(OpType::Read))?;

    // The application's own use of its RPC.
    send(&mut client, 1, ADD, &[2, 3])?;
    assert_eq!(receive(&mut client)?, (1, ADD, vec![5]));

    let fetch = |cache: &mut GrantCache, client: &mut UnixStream| -> Result<_, Error> {
        while cache.standing(now().boot, table) == Standing::Waiting {
            let boot = now().boot;
            let Some(fetch) = cache.poll_fetch(boot) else {
                let until = cache.poll_timeout().ok_or("nothing to wait for")?;
                thread::park_timeout(until.since(boot));
                continue;
            };
            // The cache's number of a request serves as that of the call.
            let call = 100 + fetch.number;
            send(client, call, KEYS, &fetch.request.encode(fetch.number))?;
            let (answered, _, body) = receive(client)?;
            assert_eq!(answered, call);
            let reply = Reply::decode(&body)?;
            // The reply says itself what it answers: one that some proxy has kept back or doubled
            // changes nothing, also where an RPC has no numbers of its own.
            let number = message::number(&body).unwrap_or(fetch.number);
            cache.handle_reply(now().boot, source, number, reply);
        }
        let keyed = cache.grant(now().boot, table, OpType::Read);
        Ok(keyed.ok_or("the owner gives no keys")?)
    };
    let before = fetch(&mut cache, &mut client)?;
    println!("client: {:?} under epoch {}", before.grant, before.epoch);

    // The owner changes the key, and an op under the old one is refused.
    send(&mut client, 2, ROTATE, &[])?;
    receive(&mut client)?;
    let refused = OpStatus::RemoteAuthenticationFailure;
    let verdict = cache.on_outcome(now().boot, table, before.epoch, refused);
    println!("client: an op under {} ended with {refused}: {verdict:?}", before.epoch);
    let after = fetch(&mut cache, &mut client)?;
    println!("client: {:?} under epoch {}", after.grant, after.epoch);
    assert!(after.epoch.number > before.epoch.number && after.grant.key != before.grant.key);

    drop(client);
    owner.join().or(Err("the owner has panicked"))?
}
