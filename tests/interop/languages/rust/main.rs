//! Produces and consumes with a client in Rust, which sends everything as batches of one.
use rocketmq_client_v4::consumer::message_handler::MessageHandler;
use rocketmq_client_v4::consumer::pull_consumer_v2::PullConsumer;
use rocketmq_client_v4::producer::Producer;
use rocketmq_client_v4::protocols::body::message_body::MessageBody;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::RwLock;

struct Seen(Mutex<HashMap<Vec<u8>, usize>>);

impl MessageHandler for Seen {
    async fn handle(&self, message: &MessageBody) {
        *self.0.lock().unwrap().entry(message.body.clone()).or_insert(0) += 1;
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let count: usize = arguments[2].parse().unwrap();
    let mut producer = Producer::new("producing".to_string(), arguments[1].clone()).await;
    for number in 0..count {
        let body = format!("m{number}").into_bytes();
        producer
            .send_message_with_tag("Spoken".to_string(), "a".to_string(), body, format!("k{number}"))
            .await
            .unwrap();
    }
    println!("sent {count}");
    let seen = Arc::new(Seen(Mutex::new(HashMap::new())));
    let go_on = Arc::new(RwLock::new(true));
    let consumer = PullConsumer::new(arguments[1].clone(), "consuming".to_string(), "Spoken".to_string());
    let (handler, running) = (seen.clone(), go_on.clone());
    tokio::spawn(async move { consumer.start_consume(handler, running).await });
    for _ in 0..600 {
        if seen.0.lock().unwrap().len() == count {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("seen {}", seen.0.lock().unwrap().len());
    std::process::exit(0);
}
