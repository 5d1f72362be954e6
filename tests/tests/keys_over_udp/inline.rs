//! Both sides turned by one thread, which turns everything.

use core::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use rma_xdp::{
    Client, InlineHost, OpType, Permissions,
    keys::{GrantsLoop, Holder, InlineKeyServer, KeyedClient, OpSet, Schedule},
};

use crate::world::{HOUR, PATIENCE, SERVER, Since, World};

#[test]
fn one_thread_turns_engines_service_and_fetches() {
    let world = World::new();
    let mut server = InlineHost::open(world.server_config()).unwrap();
    let region = server.register(4096, Permissions::READ).unwrap();
    region.write(0, b"inline").unwrap();
    let mut keys = InlineKeyServer::open(&server, &world.keys_config()).unwrap();
    keys.publish(&server, "kv/index", &region, Schedule::every(HOUR)).unwrap();

    let mut host = InlineHost::open(world.client_config()).unwrap();
    let holder = Holder { initiators: host.addresses(), pid: host.pid() };
    let mut fetches = GrantsLoop::new(holder, &world.credentials().1).unwrap();
    let grants = fetches.grants().clone();
    let source = grants.source(vec![keys.address()], SERVER.parse().unwrap());
    let ops = OpSet::NONE.with(OpType::Read);
    let index = grants.region(source, "kv/index".parse().unwrap(), ops).unwrap();
    let client = KeyedClient::new(Client::new(host.executor(4).unwrap()), &grants);
    let pool = host.buffer_pool(1, 6).unwrap();

    for round in 0..5 {
        let buf = pool.try_acquire().unwrap();
        let mut read = pin!(client.read(&index, 0, buf).timeout(PATIENCE));
        let began = Since::now();
        let (result, buf) = loop {
            server.turn();
            keys.turn(&server);
            fetches.turn();
            host.turn();
            client.client().poll();
            // Nothing waits, so nobody needs waking.
            if let Poll::Ready(over) = read.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                break over;
            }
            assert!(began.elapsed() < PATIENCE);
        };
        result.unwrap();
        assert_eq!(buf.to_vec(), b"inline");
        if round % 2 == 0 {
            keys.rotate_now(&server, "kv/index").unwrap();
        }
    }
    assert_eq!(keys.counters().keys.rotations.rotated, 3);
}
