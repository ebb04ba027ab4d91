{{- /* Scales the workers of a pool by the higher of two demands. Every node reports the figures of the whole store, so of one queue the highest counts. */ -}}
{{- define "horae.scaler" -}}
{{- $keda := .root.Values.keda -}}
{{- $matchers := list -}}
{{- with .queues }}{{ $matchers = append $matchers (printf "queue=~%q" (regexReplaceAll `[^\w|-]` (join "|" .) `\$0`)) }}{{ end -}}
{{- with $keda.matchers }}{{ $matchers = append $matchers . }}{{ end -}}
{{- $which := join "," $matchers }}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ .node.name }}
  labels: {{ include "horae.labels" .node | nindent 4 }}
spec:
  scaleTargetRef:
    name: {{ .node.name }}
  pollingInterval: {{ $keda.pollingSeconds }}
  minReplicaCount: {{ $keda.minReplicas }}
  maxReplicaCount: {{ $keda.maxReplicas }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleDown:
          stabilizationWindowSeconds: {{ $keda.calmSeconds }}
  triggers:
    - type: prometheus
      name: due
      metadata:
        serverAddress: {{ required "set keda.prometheus to the address of your Prometheus" $keda.prometheus | quote }}
        query: {{ printf "sum(max by (queue) (horae_queue_depth{%s}))" $which | quote }}
        threshold: {{ $keda.depthPerWorker | quote }}
        ignoreNullValues: "true"
    - type: prometheus
      name: due-soon
      metadata:
        serverAddress: {{ $keda.prometheus | quote }}
        query: {{ printf "sum(max by (queue) (horae_due_soon{%s}))" $which | quote }}
        threshold: {{ $keda.dueSoonPerWorker | quote }}
        ignoreNullValues: "true"
{{- end }}
