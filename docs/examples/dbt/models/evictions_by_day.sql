SELECT queue, date, sum(evicted) AS evicted, sum(added) AS added,
       sum(evicted) / nullif(sum(added), 0) AS share
FROM {{ source('lake', 'queue_minutes') }}
GROUP BY queue, date
