//! Services that start again, shut somebody out, or are gone.

use std::{fs, sync::Arc, thread};

use rma_core::executor::CommandExecutor;
use rma_xdp::{
    Host, OpStatus, OpType, Permissions, Pid,
    crypto::random_region_key,
    keys::{
        GiveUp, KeyServer, KeyedCall, KeyedError, KeyedExecutor, KeyedPiece, KeyedStatus, NoKey,
        RemoteRegion, Schedule,
    },
    transfer::RetryPolicy,
};

use rma_tests::{
    hosts::Loopback,
    keys::{HOUR, LEN, PATIENCE, POLICY, SERVER, SHORT, Since, World, owners_come_and_go},
};

#[test]
fn an_owner_that_starts_again_is_found_again() {
    let world = World::over_udp();
    let host = Host::open(world.client_config()).unwrap();
    let peer = world.client(&host);
    owners_come_and_go(&peer, &host, || world.owner(Schedule::every(HOUR)));
}

#[test]
fn a_client_shut_out_has_nothing_from_that_moment_on_and_others_go_on() {
    let world = World::over_udp();
    let (owner, host) =
        (world.owner(Schedule::every(HOUR)), Host::open(world.client_config()).unwrap());
    let [stays, goes] = [(); 2].map(|()| world.client(&host));
    for peer in [&stays, &goes] {
        peer.read(&host, "kv/index", PATIENCE).unwrap();
    }
    let index = goes.region("kv/index", &[OpType::Read]);
    let grant = index.grant(OpType::Read).unwrap().grant;
    let (mut portal, local) =
        (host.portal(1).unwrap(), host.register(64, Permissions::NONE).unwrap());
    let mut read_by_hand = || {
        portal.read(&grant, 0, &local, 0, 8).unwrap();
        portal.wait().unwrap().status
    };
    assert_eq!(read_by_hand(), OpStatus::Ok);

    world.allow(&format!("{POLICY}\n[[refuse]]\nidentity = \"{}\"\n", goes.id));
    owner.keys().reload_policy().unwrap();
    // Its keys are worth nothing, before anybody has asked for anything.
    assert_eq!(read_by_hand(), OpStatus::RemoteAuthenticationFailure);
    let error = goes.read(&host, "kv/index", PATIENCE).unwrap_err();
    let KeyedError::NoKey { why, last: Some(last) } = &error else { panic!("{error}") };
    assert!(matches!(&**why, NoKey::GaveUp { why: GiveUp::Denied, .. }), "{error}");
    assert_eq!(last.missing.len(), 1);
    assert!(error.to_string().contains(SERVER), "{error}");
    for _ in 0..10 {
        stays.read(&host, "kv/index", PATIENCE).unwrap();
    }

    // A policy that is broken changes nothing, and says so.
    world.allow("[[alow]]");
    let error = owner.keys().reload_policy().unwrap_err().to_string();
    assert!(error.contains("policy.toml: the policy cannot be read"), "{error}");
    stays.read(&host, "kv/index", PATIENCE).unwrap();
    let counters = owner.keys().counters().keys;
    let took = (counters.reloaded, counters.not_reloaded, counters.rotations.withdrawn);
    assert_eq!(took, (1, 1, 1));

    // Whoever may again is given keys again: that there were none is remembered for a second.
    world.allow(POLICY);
    owner.keys().reload_policy().unwrap();
    let began = Since::now();
    while let Err(error) = goes.read(&host, "kv/index", PATIENCE) {
        assert!(began.elapsed() < PATIENCE, "{error}");
        thread::yield_now();
    }

    // The log knows it all, and no key.
    drop(owner);
    let log = fs::read_to_string(world.scratch.path().join("audit.log")).unwrap();
    for event in ["published", "granted", "denied", "replaced", "installed", "reloaded"] {
        assert!(log.contains(&format!("\"event\":\"{event}\"")), "{event}: {log}");
    }
}

#[test]
fn ops_go_on_without_the_service_and_who_needs_it_is_told_which_it_is() {
    let world = World::over_udp();
    let mut owner = world.owner(Schedule::every(HOUR));
    let host = Host::open(world.client_config()).unwrap();
    let peer = world.client(&host);
    owner.region.write(0, b"index...").unwrap();
    peer.read(&host, "kv/index", PATIENCE).unwrap();

    owner.keys = None;
    for _ in 0..100 {
        assert_eq!(peer.read(&host, "kv/index", PATIENCE).unwrap(), *b"index...");
    }
    let error = peer.read(&host, "kv/values", SHORT).unwrap_err();
    let text = error.to_string();
    assert!(matches!(&error, KeyedError::NoKey { last: None, .. }), "{text}");
    assert!(text.starts_with("no key of kv/values in 3") && text.contains(SERVER), "{text}");
    assert!(text.contains(&world.listen.to_string()), "{text}");
    assert!(text.ends_with("cannot connect: connection refused"), "{text}");

    // A caller that polls is told the same.
    let values = peer.region("kv/values", &[OpType::Read]);
    let local = host.register(64, Permissions::NONE).unwrap();
    let (portal, _lease) = host.portal(1).unwrap().into_parts();
    let executor = CommandExecutor::new(portal, host.executor_config()).unwrap();
    let mut executor = KeyedExecutor::new(executor);
    let late = peer.grants.with_cache(|cache, now| {
        let ring = values.ring();
        let piece =
            KeyedPiece { ring, remote_offset: 0, local: local.clone(), local_offset: 0, len: 8 };
        let deadline = Some(now + SHORT);
        let call = KeyedCall {
            op_type: OpType::Read,
            pieces: vec![piece],
            class: None,
            retry: RetryPolicy::default(),
            deadline,
        };
        executor.submit(now, cache, call);
        executor.poll(now + SHORT, cache);
        executor.poll_outcome().unwrap().status
    });
    let Ok(KeyedStatus::Late { ring, waited }) = late else { panic!("{late:?}") };
    let text = peer.grants.late(ring, waited).to_string();
    assert!(text.starts_with("no key of kv/values in 300 ms") && text.contains(SERVER), "{text}");
    assert!(text.contains(&world.listen.to_string()), "{text}");

    // Many wait, and give up: nothing of them is left.
    let pool = host.buffer_pool(32, 64).unwrap();
    let mut waiting: Vec<_> = (0..32)
        .map(|_| Box::pin(peer.client.read(&values, 0, pool.try_acquire().unwrap())))
        .collect();
    let polled = core::future::poll_fn(|context| {
        let pending = waiting.iter_mut().all(|it| it.as_mut().poll(context).is_pending());
        core::task::Poll::Ready(pending)
    });
    assert!(peer.client.block_on(polled).unwrap());
    assert_eq!(pool.free(), 0);
    drop(waiting);
    assert_eq!((pool.free(), peer.client.client().calls()), (32, 0));

    // The service starts again: whoever has a key of its earlier life fetches, and goes on.
    let values = owner.host.register(LEN as usize, Permissions::READ).unwrap();
    values.write(0, b"values..").unwrap();
    let regions = [("kv/index", &owner.region), ("kv/values", &values)];
    let regions = regions.map(|(name, region)| (name, region, Schedule::every(HOUR)));
    let host_again = Arc::clone(&owner.host);
    let keys = KeyServer::start_with(host_again, &world.keys_config(), &regions).unwrap();
    assert_eq!(peer.read(&host, "kv/values", PATIENCE).unwrap(), *b"values..");
    assert_eq!(peer.read(&host, "kv/index", PATIENCE).unwrap(), *b"index...");

    // A second name for a region is refused, and the key that it has under the first one stays.
    let grant = peer.region("kv/index", &[OpType::Read]).grant(OpType::Read).unwrap();
    let error = keys.publish("kv/other", &owner.region, Schedule::every(HOUR)).unwrap_err();
    let says = "kv/other is the region that is published as kv/index: take that out first";
    assert!(error.to_string().starts_with(says), "{error}");
    assert_eq!(peer.read(&host, "kv/index", PATIENCE).unwrap(), *b"index...");
    let after = peer.region("kv/index", &[OpType::Read]).grant(OpType::Read).unwrap();
    assert_eq!(after.epoch, grant.epoch);
    keys.remove("kv/index").unwrap();
    let error = peer.read(&host, "kv/index", PATIENCE).unwrap_err();
    assert!(matches!(&error, KeyedError::NoKey { .. }), "{error}");
}

//= 1rma#5.2-remote-rotation
//= type=test
#[test]
fn the_key_of_another_hosts_region_changes_while_its_program_sleeps() {
    let world = World::over_udp();
    let (host, client) = (Host::open(world.server_config()), Host::open(world.client_config()));
    let (host, client) = (Arc::new(host.unwrap()), client.unwrap());
    let elsewhere = Loopback::third();
    let config =
        world.server_config().with(|it| (it.addresses, it.pid) = (vec![elsewhere], Pid(2)));
    // The program of this host does nothing from here on.
    let owner = Host::open(config).unwrap();
    let region = owner.register(LEN as usize, Permissions::READ | Permissions::REKEY).unwrap();
    region.write(0, &[7; 8]).unwrap();
    let key = random_region_key().unwrap();
    owner.rekey(&region, key).unwrap();
    let region = RemoteRegion { responders: owner.addresses(), id: region.id(), len: LEN, key };

    let config =
        world.keys_config().with(|it| it.remote_keys = Some(world.scratch.path().join("keys")));
    let start = || KeyServer::start(Arc::clone(&host), &config).unwrap();
    let mut keys = start();
    keys.publish_remote("kv/index", &region, Schedule::every(HOUR)).unwrap();
    let peer = world.client(&client);
    for life in 0..2 {
        for rotation in 1..=3 {
            keys.rotate_now("kv/index").unwrap();
            while keys.counters().keys.rotations.rotated < rotation {
                assert_eq!(peer.read(&client, "kv/index", PATIENCE).unwrap(), [7; 8]);
            }
        }
        // A service that starts again has the keys of its file.
        drop(keys);
        keys = start();
        assert_eq!(peer.read(&client, "kv/index", PATIENCE).unwrap(), [7; 8], "life {life}");
    }
}
