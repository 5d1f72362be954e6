//! A small RPC: requests through one channel, answers through another, both threads asleep while
//! there is nothing to do.

use rma_xdp::{
    Host, HostConfig,
    channel::{
        Channels, Close, Peer, Terms,
        write_slot::{SlotConfig, immediate},
    },
};

const REQUESTS: u64 = 5;

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Error> {
    let (client, server) = ([127, 0, 0, 37], [127, 0, 0, 38]);
    let here = Host::open(HostConfig::udp(client))?;
    let there = Host::open(HostConfig::udp(server))?;
    let client = Peer { address: client.into(), pid: here.pid() };
    let server = Peer { address: server.into(), pid: there.pid() };

    // Each end is opened at its own host, for the other as its peer. What comes for a receiver
    // wakes who sleeps at the portal that it was opened with.
    let portal = there.portal(8)?;
    let host = there.waking(&portal);
    let requests = immediate::Receiver::open(&host, SlotConfig::with_peer(client))?;
    let answers = immediate::Sender::open(&host, SlotConfig::with_peer(client))?;
    let mut channels = Channels::new(portal, there.executor_config())?;
    // To the client, over something that keeps secrets.
    let told = [requests.terms().to_bytes(), answers.terms().to_bytes()];

    let portal = here.portal(8)?;
    let host = here.waking(&portal);
    let to_server = immediate::Sender::open(&host, SlotConfig::with_peer(server))?;
    let from_server = immediate::Receiver::open(&host, SlotConfig::with_peer(server))?;
    let mut mine = Channels::new(portal, here.executor_config())?;
    // To the server, likewise.
    let told_back = [to_server.terms().to_bytes(), from_server.terms().to_bytes()];

    let mut requests = requests.connect(&Terms::from_bytes(&told_back[0])?)?;
    let mut answers = answers.connect(&Terms::from_bytes(&told_back[1])?)?;
    let serving = std::thread::spawn(move || {
        for _ in 0..REQUESTS {
            // Sleeps until there is a request.
            let request = channels.recv(&mut requests, &mut [&mut answers])?.to_vec();
            channels.send(&mut answers, &request.to_ascii_uppercase())?;
        }
        // Whoever is gone at once may leave the last answer behind.
        let goodbye = channels.send(&mut answers, b"that is all")?;
        channels.sent(&mut answers, goodbye)?;
        // The regions that the ends have registered go back to their host.
        requests.close(&there).and_then(|()| answers.close(&there))?;
        Ok::<_, Error>(())
    });

    let mut to_server = to_server.connect(&Terms::from_bytes(&told[0])?)?;
    let mut from_server = from_server.connect(&Terms::from_bytes(&told[1])?)?;
    for number in 1..=REQUESTS {
        mine.send(&mut to_server, format!("request {number}").as_bytes())?;
        let answer = mine.recv(&mut from_server, &mut [&mut to_server])?.to_vec();
        assert_eq!(answer, format!("REQUEST {number}").into_bytes());
        println!("{}", String::from_utf8_lossy(&answer));
    }
    let goodbye = mine.recv(&mut from_server, &mut [&mut to_server])?.to_vec();
    println!("{}", String::from_utf8_lossy(&goodbye));
    to_server.close(&here).and_then(|()| from_server.close(&here))?;
    serving.join().expect("the server's thread goes on to its end")?;
    Ok(())
}
