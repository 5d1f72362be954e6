//! Regions over memory that others have, too: what remote hosts write is seen there, and what is
//! written there remote hosts read.

use std::{
    fs::File,
    os::unix::fs::{FileExt, OpenOptionsExt},
    sync::Arc,
};

use rma_tests::hosts::{CLIENT_PID, Hosts};
use rma_xdp::{
    Grant, OpStatus, OpType, Permissions, Region, config::NicConfigBuilder,
    crypto::random_region_key,
};

const LEN: usize = 3 * 4096 + 5;

/// Writes to `memory` from afar and reads it back from afar after `change`.
fn write_change_read(memory: Region, change: impl FnOnce(&Region)) {
    let hosts = Hosts::over_udp(NicConfigBuilder::default());
    let (memory, key) = (Arc::new(memory), random_region_key().unwrap());
    let both = Permissions::READ | Permissions::WRITE;
    let served = hosts.server().register_memory(memory.clone(), key, both).unwrap();
    let grant = |op_type| -> Grant {
        hosts.server().grant(&served, hosts.client_addr, CLIENT_PID, op_type).unwrap()
    };
    let mut portal = hosts.client.portal(1).unwrap();
    let local = hosts.client.register(4096, Permissions::NONE).unwrap();
    local.write(0, &[5; 4096]).unwrap();
    portal.write(&grant(OpType::Write), LEN as u64 - 4096, &local, 0, 4096).unwrap();
    assert_eq!(portal.wait().unwrap().status, OpStatus::Ok);
    change(&memory);
    portal.read(&grant(OpType::Read), 0, &local, 0, 4096).unwrap();
    assert_eq!(portal.wait().unwrap().status, OpStatus::Ok);
    let mut bytes = [0; 4096];
    local.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [6; 4096]);
}

#[test]
fn a_region_of_shared_memory_is_the_other_processs_memory() {
    write_change_read(Region::memfd("rma-test", LEN).unwrap(), |memory| {
        // As another process does it that was given the descriptor.
        let other = Region::map_memfd(memory.fd().unwrap().try_clone_to_owned().unwrap()).unwrap();
        let mut bytes = [0; 4096];
        other.copy_out(LEN as u64 - 4096, &mut bytes).unwrap();
        assert_eq!(bytes, [5; 4096]);
        other.copy_in(0, &[6; 4096]).unwrap();
    });
}

#[test]
fn a_region_of_a_file_is_the_file() {
    let path = std::env::temp_dir().join(format!("rma-region-memory-{}", std::process::id()));
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path).unwrap();
    // Without a name it is nobody else's, and goes with its last descriptor.
    std::fs::remove_file(&path).unwrap();
    file.set_len(LEN as u64).unwrap();
    write_change_read(Region::map_file(file.try_clone().unwrap(), LEN).unwrap(), |memory| {
        memory.sync().unwrap();
        let mut bytes = [0; 4096];
        file.read_exact_at(&mut bytes, LEN as u64 - 4096).unwrap();
        assert_eq!(bytes, [5; 4096]);
        file.write_all_at(&[6; 4096], 0).unwrap();
    });
}
