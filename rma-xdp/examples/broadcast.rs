//! A broadcast: one host stores messages into its own memory, and three others read them from
//! there, each at its own pace. The sender issues nothing.

use std::time::Duration;

use rma_xdp::{
    Host, HostConfig, Pid,
    channel::{
        Channels, Close, Peer, Terms,
        read_ring::{ReadRingConfig, ReaderConfig, detached_bell},
    },
};

const READERS: u8 = 3;
const MESSAGES: u64 = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = [127, 0, 0, 39];
    let host = Host::open(HostConfig::udp(address))?;
    // A ring of 64 KiB. Whoever tells nothing for ten seconds, though there is something to read,
    // is not waited for any longer, and finds out.
    let mut sender = detached_bell::Sender::open(&host, ReadRingConfig::default())?;
    let mut readers = Vec::new();
    for number in 1..=READERS {
        let (address, pid) = ([127, 0, 0, 39 + number], Pid(number.into()));
        let peer = Peer { address: address.into(), pid };
        // To that reader, over something that keeps secrets.
        let told = sender.admit(&host, peer)?.to_bytes();
        readers.push(std::thread::spawn(move || {
            read(address, pid, &told).map_err(|error| error.to_string())
        }));
    }
    let mut channels = Channels::new(host.portal(1)?, host.executor_config())?;
    for number in 1..=MESSAGES {
        // Waits while the ring is full of what the slowest reader has not read.
        channels.send(&mut sender, format!("message {number}").as_bytes())?;
    }
    for reader in readers {
        println!("{}", reader.join().expect("a reader goes on to its end")?);
    }
    // The regions that it has registered, for readers as well, go back to the host.
    sender.close(&host)?;
    Ok(())
}

/// Reads all messages, and says so.
fn read(address: [u8; 4], pid: Pid, told: &[u8]) -> Result<String, Box<dyn std::error::Error>> {
    let host = Host::open(HostConfig::udp(address).with(|it| it.pid = pid))?;
    let terms = Terms::from_bytes(told)?;
    let mut receiver = detached_bell::Receiver::join(&host, ReaderConfig::default(), &terms)?;
    let mut channels = Channels::new(host.portal(8)?, host.executor_config())?;
    for number in 1..=MESSAGES {
        let interval = Duration::from_millis(1);
        let message = channels.recv_every(&mut receiver, &mut [], interval)?;
        assert_eq!(message.to_vec(), format!("message {number}").into_bytes());
    }
    receiver.close(&host)?;
    Ok(format!(
        "process {pid} of {} has read {MESSAGES} messages",
        std::net::Ipv4Addr::from(address)
    ))
}
