//! Batches for backends that work on several keys at once.

use std::collections::HashMap;

use crate::{ClaimKey, DedupError, check_batch};

/// A batch in rounds of distinct keys, and its answers so far.
pub(crate) struct BatchPlan<T> {
    /// Indexes of valid requests. A key that occurs twice is in two rounds, because its steps have an
    /// order.
    pub(crate) rounds: Vec<Vec<usize>>,
    answers: Vec<Result<T, DedupError>>,
}

impl<T: Clone> BatchPlan<T> {
    /// Requests that are invalid are answered already.
    pub(crate) fn new<R>(
        requests: &[R],
        key: impl Fn(&R) -> &ClaimKey,
        check: impl Fn(&R) -> Result<(), DedupError>,
    ) -> Self {
        let unanswered = DedupError::Unavailable("the batch was not answered".to_owned());
        let mut answers = vec![Err(unanswered); requests.len()];
        let mut rounds: Vec<Vec<usize>> = Vec::new();
        if let Err(error) = check_batch(requests.len()) {
            answers.fill(Err(error));
            return Self { rounds, answers };
        }
        let mut occurrences: HashMap<&ClaimKey, usize> = HashMap::new();
        for (index, request) in requests.iter().enumerate() {
            if let Err(error) = check(request) {
                answers[index] = Err(error);
                continue;
            }
            let round = occurrences.entry(key(request)).or_insert(0);
            if rounds.len() == *round {
                rounds.push(Vec::new());
            }
            rounds[*round].push(index);
            *round += 1;
        }
        Self { rounds, answers }
    }

    /// Records the answers of a round.
    pub(crate) fn answer(&mut self, round: &[usize], answers: Vec<Result<T, DedupError>>) {
        for (index, answer) in round.iter().zip(answers) {
            self.answers[*index] = answer;
        }
    }

    /// All answers in the order of the requests.
    pub(crate) fn finish(self) -> Vec<Result<T, DedupError>> {
        self.answers
    }
}
