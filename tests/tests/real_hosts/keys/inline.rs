//! Both sides turned by one thread, which turns everything, and so knows when what happens.

use core::{
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use rma_xdp::{
    Client, InlineHost, OpStatus, OpType, Permissions, RegisteredRegion,
    keys::{Holder, InlineKeyServer, KeyCacheLoop, KeyedClient, KeyedRegion, OpSet, Schedule},
};

use rma_tests::keys::{HOUR, LEN, PATIENCE, SERVER, Since, World};

/// A host with a region, `kv/index`, and the service of its keys.
struct Owner {
    host: InlineHost,
    region: RegisteredRegion,
    keys: InlineKeyServer,
}

impl Owner {
    fn new(world: &World) -> Self {
        let host = InlineHost::open(world.server_config()).unwrap();
        let region = host.register(LEN as usize, Permissions::READ | Permissions::WRITE).unwrap();
        let mut keys = InlineKeyServer::open(&host, &world.keys_config()).unwrap();
        keys.publish(&host, "kv/index", &region, Schedule::every(HOUR)).unwrap();
        Self { host, region, keys }
    }
}

/// A client of it, with few command slots.
struct Peer {
    host: InlineHost,
    fetches: KeyCacheLoop,
    client: KeyedClient,
    index: KeyedRegion,
}

impl Peer {
    fn new(world: &World) -> Self {
        let host = InlineHost::open(world.client_config()).unwrap();
        let holder = Holder { initiators: host.addresses(), pid: host.pid() };
        let fetches = KeyCacheLoop::new(holder, &world.credentials().1).unwrap();
        let grants = fetches.key_cache().clone();
        let source = grants.source(vec![world.listen], SERVER.parse().unwrap()).unwrap();
        let ops = [OpType::Read, OpType::Write].into_iter().collect::<OpSet>();
        let index = grants.region(source, "kv/index".parse().unwrap(), ops).unwrap();
        let client = KeyedClient::new(Client::new(host.transfers(4).unwrap()), &grants);
        Self { host, fetches, client, index }
    }

    fn ops_done(&self) -> u64 {
        let completions = self.host.metrics().completions;
        completions.iter().find(|(status, _)| *status == OpStatus::Ok).unwrap().1
    }

    /// Turns both sides until `future` is over, or `stops` says so.
    fn turn_until<F: Future>(
        &mut self,
        owner: &mut Owner,
        mut future: Pin<&mut F>,
        stops: impl Fn(&Self) -> bool,
    ) -> Poll<F::Output> {
        let began = Since::now();
        loop {
            owner.host.turn();
            owner.keys.turn(&owner.host);
            self.fetches.turn();
            self.host.turn();
            self.client.client().poll();
            // Nothing waits, so nobody needs waking.
            let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            if polled.is_ready() || stops(self) {
                return polled;
            }
            assert!(began.elapsed() < PATIENCE);
        }
    }

    fn turn_to_its_end<F: Future>(&mut self, owner: &mut Owner, future: Pin<&mut F>) -> F::Output {
        match self.turn_until(owner, future, |_| false) {
            Poll::Ready(output) => output,
            Poll::Pending => unreachable!("nothing else ends it"),
        }
    }
}

#[test]
fn one_thread_turns_engines_service_and_fetches() {
    let world = World::over_udp();
    let (mut owner, mut peer) = (Owner::new(&world), Peer::new(&world));
    owner.region.write(0, b"inline").unwrap();
    let pool = peer.host.buffer_pool(1, 6).unwrap();
    for round in 0..5 {
        let buf = pool.try_acquire().unwrap();
        let read = pin!(peer.client.read(&peer.index, 0, buf).timeout(PATIENCE));
        let (result, buf) = peer.turn_to_its_end(&mut owner, read);
        result.unwrap();
        assert_eq!(buf.to_vec(), b"inline");
        if round % 2 == 0 {
            owner.keys.rotate_now(&owner.host, "kv/index").unwrap();
        }
    }
    assert_eq!(owner.keys.counters().keys.rotations.rotated, 3);
}

/// Bytes in the midst of the one region belong to nobody.
#[test]
fn a_transfer_whose_owner_starts_again_midway_begins_anew() {
    const OLD: u8 = 1;
    const NEW: u8 = 2;
    const OURS: u8 = 3;
    for op_type in [OpType::Read, OpType::Write] {
        let world = World::over_udp();
        let (mut owner, mut peer) = (Owner::new(&world), Peer::new(&world));
        owner.region.write(0, &[OLD; LEN as usize]).unwrap();
        let pool = peer.host.buffer_pool(1, LEN as u32).unwrap();
        let mut buf = pool.try_acquire().unwrap();
        buf.write(0, &[OURS; LEN as usize]).unwrap();
        let transfer = match op_type {
            OpType::Read => peer.client.read(&peer.index, 0, buf),
            _ => peer.client.write(&peer.index, 0, buf),
        };
        let mut transfer = pin!(transfer.timeout(PATIENCE));
        // With four slots, most of it is still to come.
        let polled = peer.turn_until(&mut owner, transfer.as_mut(), |it| it.ops_done() >= 8);
        assert!(polled.is_pending(), "{polled:?}");

        drop(owner);
        let mut owner = Owner::new(&world);
        owner.region.write(0, &[NEW; LEN as usize]).unwrap();
        let (result, buf) = peer.turn_to_its_end(&mut owner, transfer);
        result.unwrap();
        let mut held = vec![0; LEN as usize];
        owner.region.read(0, &mut held).unwrap();
        let (found, expected) = match op_type {
            OpType::Read => (buf.to_vec(), NEW),
            _ => (held, OURS),
        };
        let wrong = found.iter().position(|it| *it != expected);
        assert_eq!((wrong, found.len()), (None, LEN as usize), "{op_type}");
    }
}
